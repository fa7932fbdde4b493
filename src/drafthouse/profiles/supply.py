"""Where a profile's weights and the code in them come from: what is refused, and what a person should know. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.pins import is_commit
from ..core.schema import Findings
from .pickles import pickles

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry
    from drafthouse.profiles.resolved_types import RemoteCode, SourceKind, WeightItem

_SOURCES: tuple[SourceKind, ...] = ("path", "package", "derived", "hub")


def check_pickles(findings: Findings, path: str, model: CatalogModel) -> None:
    """Refuse pickled weights that the catalogue names by their patterns; those it does not name, the hub lists."""
    patterns, allowed = [model.get("file") or ""], []
    if hub := model["source"].get("hub"):
        patterns += hub.get("allow") or ()
    if pickle := model.get("allow_pickle"):
        allowed = pickle["files"]
    for pattern in pickles(patterns, allowed):
        findings.add(
            "pickled-weights",
            path,
            f"pickled weights: {pattern} of '{model['id']}'",
            "safetensors: loading a pickle runs code",
            "choose weights that come as safetensors, or name them in the model's entry: allow_pickle:"
            f' {{files: ["{pattern}"], reason: ...}}',
        )


def remote_code(findings: Findings, models: Mapping[str, CatalogModel | None]) -> list[RemoteCode]:
    """Whose code the engine runs with trust_remote_code: repository and commit, a row each.

    ``models`` are target and draft by their place in the profile. A repository without a commit is a finding.
    """
    rows: list[RemoteCode] = []
    for path, model in models.items():
        hub = model["source"].get("hub") if model else None
        if not model or not (hub or "path" in model["source"]):
            continue  # a file of ours, or made here: no repository has code for it
        if hub and not is_commit(hub["revision"]):
            findings.add(
                "remote-code-not-pinned",
                "serve.trust_remote_code",
                f"true with {hub['repo']} ({path}) at {hub['revision']}, where the code can change",
                "a commit, so that the code that runs is the code that was read",
                f"read the Python files of {hub['repo']}, then set the commit as its revision in"
                " profiles/catalog/models.yml; or leave trust_remote_code out",
            )
        where = hub["repo"] if hub else model["source"]["path"]
        rows.append({"model": model["id"], "repo": where, "commit": hub["revision"] if hub else None})
    return rows


def supply_notes(code: Sequence[RemoteCode], models: Sequence[CatalogModel]) -> list[str]:
    """What a person should know of where code (rows of `remote_code`) and weights come from."""
    notes = []
    for source in code:
        version = ", a folder of yours"
        if source["commit"]:
            version = f" at {source['commit']}"
        notes.append(f"trust_remote_code: the engine runs the Python code of {source['repo']}{version}")
    for model in models:
        if pickle := model.get("allow_pickle"):
            files = ", ".join(pickle["files"])
            notes.append(f"pickled weights of {model['name']} ({files}) run code when loaded: {pickle['reason']}")
    return notes


def weight_items(
    models: Mapping[str, ModelEntry],
    wanted: Iterable[str],
    path_of: Callable[[ModelEntry], str],
    heads: Mapping[str, BuiltinHead],
) -> list[WeightItem]:
    """Everything to put in place for the ``wanted`` ones of ``models``, each after what it is made from.

    ``path_of`` tells where a model lies on the box, ``heads`` which head inside a model is drafted with.
    """
    ordered: dict[str, WeightItem] = {}

    def add(key: str) -> None:
        model = models[key]
        derived = model["source"].get("derived")
        if derived:
            add(derived["from"])
        kind = next(one for one in _SOURCES if one in model["source"])
        item: WeightItem = {
            "id": key,
            "name": model["name"],
            "source": kind,
            "details": model["source"][kind],
            "path": path_of(model),
            "bytes": model["weight_bytes"],
        }
        if pickle := model.get("allow_pickle"):
            item["allow_pickle"] = list(pickle["files"])
        if head := heads.get(key):
            item["builtin_head"] = head
        if derived:
            item["from_path"] = path_of(models[derived["from"]])
        ordered.setdefault(key, item)

    for key in wanted:
        add(key)
    return list(ordered.values())
