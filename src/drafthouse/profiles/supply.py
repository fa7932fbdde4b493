"""Supply chain of a profile: which weights to put on the box, which are refused, and warnings of code in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.pins import is_commit
from ..core.schema import Findings
from .pickles import pickled_files

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry
    from drafthouse.profiles.resolved_types import RemoteCode, SourceKind, WeightItem

_SOURCES: tuple[SourceKind, ...] = ("path", "package", "derived", "hub")


def check_pickles(findings: Findings, path: str, model: CatalogModel) -> None:
    """Refuse pickled weights among the patterns of a catalogue entry; the download checks the hub's own list."""
    patterns = [model.get("file") or ""]
    allowed: list[str] = []
    if hub := model["source"].get("hub"):
        patterns += hub.get("allow") or ()
    if pickle := model.get("allow_pickle"):
        allowed = pickle["files"]
    for pattern in pickled_files(patterns, allowed):
        findings.add(
            "pickled-weights",
            path,
            f"pickled weights: {pattern} of '{model['id']}'",
            "safetensors: loading a pickle runs code",
            "choose weights that come as safetensors, or name them in the model's entry: allow_pickle:"
            f' {{files: ["{pattern}"], reason: ...}}',
        )


def remote_code(findings: Findings, models: Mapping[str, CatalogModel | None]) -> list[RemoteCode]:
    """The repositories or folders whose Python code the engine runs with trust_remote_code.

    ``models``: target and draft by their keys in the profile. A repository without a commit is a problem.
    """
    sources: list[RemoteCode] = []
    for path, model in models.items():
        hub = model["source"].get("hub") if model else None
        if not model or not (hub or "path" in model["source"]):
            continue  # from a package, or derived on the box: no repository with code
        if hub and not is_commit(hub["revision"]):
            findings.add(
                "remote-code-not-pinned",
                "serve.trust_remote_code",
                f"true with {hub['repo']} ({path}) at {hub['revision']}, where the code can change",
                "a commit, so that the code that runs is the code that was read",
                f"read the Python files of {hub['repo']}, then set the commit as its revision in"
                " profiles/catalog/models.yml; or leave trust_remote_code out",
            )
        repo = hub["repo"] if hub else model["source"]["path"]
        sources.append({"model": model["id"], "repo": repo, "commit": hub["revision"] if hub else None})
    return sources


def supply_notes(code: Sequence[RemoteCode], models: Sequence[CatalogModel]) -> list[str]:
    """Warnings of code that comes with the models: ``code`` from `remote_code`, and pickled weights."""
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
    """The weights to put on the box for the ``wanted`` names of ``models``, each once, after those it is derived from.

    ``path_of`` returns a model's path on the box. ``heads``: by model, the built-in head that drafts.
    """
    ordered: dict[str, WeightItem] = {}

    def add(key: str) -> None:
        """Add a model's weights to ``ordered``, after those that they are derived from; those there stay in place."""
        model = models[key]
        derived = model["source"].get("derived")
        if derived:
            add(derived["from"])
        source = next(source_kind for source_kind in _SOURCES if source_kind in model["source"])
        item: WeightItem = {
            "id": key,
            "name": model["name"],
            "source": source,
            "details": model["source"][source],
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
