"""Heads, inside a target (``builtin_head``) and of their own, and which of them a method drafts with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.schema import Findings

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, DraftKind, EngineEntry, Method
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry


def head_kind(method_id: str, method: Method) -> str:
    """The kind of the heads that a method drafts with; an engine may call the method otherwise."""
    return method.get("head", method_id)


def draft_kind(method: Method, draft: ModelEntry | None) -> DraftKind:
    """What a method drafts with where the profile names ``draft`` (None: nothing)."""
    return "head" if draft and method.get("or_head") else method["draft"]


def builtin_head(target: ModelEntry, method_id: str, method: Method | None) -> BuiltinHead | None:
    """The head inside ``target`` that a method can draft with; None where there is none, or it needs none."""
    head = target.get("builtin_head")
    if not head or not method or method["draft"] != "builtin" or head["kind"] != head_kind(method_id, method):
        return None
    return head


def head_as_target(
    target: str, draft: str | None, models: Mapping[str, ModelEntry]
) -> tuple[str, str | None, list[str]]:
    """The words for target and draft of a profile, and a warning where its ``target`` is a head.

    An engine that is given the repository of such a head serves the model that this names, and drafts with the head.
    """
    config = models[target].get("speculators")
    if config is None or draft not in (None, target):
        return target, draft, []
    note = f"'{target}' is a head whose repository names its model: {config['target']} is served, and the head drafts"
    return config["target"], target, [note]


def method_for_head(engine: EngineEntry, kind: str, draft: DraftKind) -> str | None:
    """The engine's method that drafts with heads of this kind, which are a ``draft``; None where it has none."""
    for key, method in engine["methods"].items():
        able = method["draft"] == draft or (draft == "head" and method.get("or_head"))
        if able and head_kind(key, method) == kind:
            return key
    return None


def builtin_kinds(engines: Mapping[str, EngineEntry]) -> set[str]:
    """The kinds of heads inside a target that any engine drafts with."""
    kinds: set[str] = set()
    for engine in engines.values():
        for key, method in engine["methods"].items():
            if method["draft"] == "builtin":
                kinds.add(head_kind(key, method))
    return kinds


def check_entry(findings: Findings, key: str, model: ModelEntry, head: BuiltinHead) -> None:
    """Add what is wrong with a model's ``head`` in the catalogue."""
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
    target: CatalogModel,
    method: CatalogMethod,
    engine: EngineEntry,
    models: Mapping[str, ModelEntry],
) -> None:
    """Add to ``findings`` when a method drafts with a head inside the target, and ``target`` has none of its kind."""
    if builtin_head(target, method["id"], method):
        return
    kind = head_kind(method["id"], method)
    having = [
        key
        for key, model in models.items()
        if model["format"] in engine["formats"] and builtin_head(model, method["id"], method)
    ]
    # The same model, exported with its head.
    same = [key for key in having if _shape(models[key]) == _shape(target)]
    own = [key for key, model in models.items() if method.get("or_head") and made_for(model, target["id"], kind)]
    has = "without such a head"
    if head := target.get("builtin_head"):
        has = f"with a head of the kind '{head['kind']}'"
    needed = f"a target with a head of the kind '{kind}' in its weights, which '{method['id']}' needs"
    if method.get("or_head"):
        needed += ", or such a head named in speculation.draft"
    choices = []
    if own:
        choices.append(f"add speculation.draft, one of: {', '.join(own)}")
    if having:
        choices.append(f"choose a target that has one: {', '.join(same or having)}")
    do = "; or ".join(choices) or "choose another method: the catalogue has no target with such a head for this engine"
    findings.add("no-builtin-head", "target", f"'{target['id']}' {has} in its weights", needed, do)


def _shape(model: ModelEntry) -> tuple[int, int, int, str]:
    return model["layers"], model["hidden"], model["vocab"], model["tokenizer"]


def made_for(model: ModelEntry, target: str, kind: str) -> bool:
    """Tell whether a model is a head of this kind that drafts for ``target``."""
    return model.get("head_method") == kind and (model.get("head_for") == target or target in model.get("works_on", ()))
