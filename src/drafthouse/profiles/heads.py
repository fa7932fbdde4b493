"""Heads (layers that draft for one target), built into the target or separate, and which method uses which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.schema import Findings

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, DraftKind, EngineEntry, Method
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry


def head_kind(method_id: str, method: Method) -> str:
    """The kind of heads that a method drafts with; it is the method's name unless the engine's entry has `head`."""
    return method.get("head", method_id)


def draft_kind(method: Method, draft: ModelEntry | None) -> DraftKind:
    """The kind of draft that a method uses; ``draft``: the profile's draft, None if it names none.

    A method with `or_head` uses a separate head if the profile names one, otherwise its usual kind.
    """
    return "head" if draft and method.get("or_head") else method["draft"]


def builtin_head(target: ModelEntry, method_id: str, method: Method | None) -> BuiltinHead | None:
    """The built-in head of ``target`` with which a method drafts.

    None without a method, if the method drafts with something else, or if the target has no head of its kind.
    """
    head = target.get("builtin_head")
    if not head or not method or method["draft"] != "builtin" or head["kind"] != head_kind(method_id, method):
        return None
    return head


def head_as_target(
    target: str, draft: str | None, models: Mapping[str, ModelEntry]
) -> tuple[str, str | None, list[str]]:
    """The target and the draft to use, with a warning if ``target`` is a head whose config names its own target.

    ``draft``: None if the profile names none. An engine that is given such a head's repository does the same: it serves
    that model and drafts with the head. If the profile names another draft, both stay as they are.
    """
    config = models[target].get("speculators")
    if config is None or draft not in (None, target):
        return target, draft, []
    note = f"'{target}' is a head whose repository names its model: {config['target']} is served, and the head drafts"
    return config["target"], target, [note]


def method_for_head(engine: EngineEntry, kind: str, draft: DraftKind) -> str | None:
    """The engine's method for heads of ``kind`` that are given as ``draft`` (head or builtin); None if none."""
    for key, method in engine["methods"].items():
        takes_draft = method["draft"] == draft or (draft == "head" and method.get("or_head"))
        if takes_draft and head_kind(key, method) == kind:
            return key
    return None


def builtin_kinds(engines: Mapping[str, EngineEntry]) -> set[str]:
    """The kinds of built-in heads with which some engine drafts."""
    kinds: set[str] = set()
    for engine in engines.values():
        for key, method in engine["methods"].items():
            if method["draft"] == "builtin":
                kinds.add(head_kind(key, method))
    return kinds


def check_entry(findings: Findings, key: str, model: ModelEntry, head: BuiltinHead) -> None:
    """Add problems of the built-in ``head`` of the catalogue's entry ``key``."""
    if model["kind"] != "model":
        findings.add(
            "conflicting-keys", f"{key}.builtin_head", f"a head inside a {model['kind']}", "a model", "remove the key"
        )
    if head.get("weight_bytes", 0) >= model["weight_bytes"]:
        findings.add(
            "conflicting-keys",
            f"{key}.builtin_head.weight_bytes",
            f"{head['weight_bytes']} bytes",
            f"a part of the model's own {model['weight_bytes']}",
            "correct it",
        )


def check_builtin(
    findings: Findings,
    *,
    target: CatalogModel,
    method: CatalogMethod,
    engine: EngineEntry,
    models: Mapping[str, ModelEntry],
) -> None:
    """Add a problem if ``target`` has no built-in head of the kind with which the method drafts.

    The advice names, from all ``models`` of the catalogue, separate heads and targets that the engine could use.
    """
    if builtin_head(target, method["id"], method):
        return
    kind = head_kind(method["id"], method)
    with_head = [
        key
        for key, model in models.items()
        if model["format"] in engine["formats"] and builtin_head(model, method["id"], method)
    ]
    # Exports of the same model that have its head.
    same_model = [key for key in with_head if _shape(models[key]) == _shape(target)]
    separate = [key for key, model in models.items() if method.get("or_head") and made_for(model, target["id"], kind)]
    has = "without such a head"
    if head := target.get("builtin_head"):
        has = f"with a head of the kind '{head['kind']}'"
    needed = f"a target with a head of the kind '{kind}' in its weights, which '{method['id']}' needs"
    if method.get("or_head"):
        needed += ", or such a head named in speculation.draft"
    choices = []
    if separate:
        choices.append(f"add speculation.draft, one of: {', '.join(separate)}")
    if with_head:
        choices.append(f"choose a target that has one: {', '.join(same_model or with_head)}")
    do = "; or ".join(choices) or "choose another method: the catalogue has no target with such a head for this engine"
    findings.add("no-builtin-head", "target", f"'{target['id']}' {has} in its weights", needed, do)


def _shape(model: ModelEntry) -> tuple[int, int, int, str]:
    """What exports of the same model have in common: layers, hidden size, vocabulary and tokenizer."""
    return model["layers"], model["hidden"], model["vocab"], model["tokenizer"]


def made_for(model: ModelEntry, target: str, kind: str) -> bool:
    """True if ``model`` is a head of ``kind`` for ``target``: trained for it, or with shapes that fit."""
    return model.get("head_method") == kind and (model.get("head_for") == target or target in model.get("works_on", ()))
