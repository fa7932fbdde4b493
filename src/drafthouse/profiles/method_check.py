"""Whether an engine has the method that a profile asks for, with its options and what it drafts with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import did_you_mean
from .engine_options import OptionCheck
from .heads import check_builtin, draft_kind, head_kind, made_for
from .model_check import loads

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, EngineEntry, Method, Options
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry
    from drafthouse.profiles.profile_types import Speculation

#: What a method does that drafts without a model or a head of its own.
_WITHOUT: Final[Mapping[str, str]] = {
    "lookup": "looks its tokens up in the text",
    "builtin": "drafts with the head inside the target",
}


def check_method(
    check: OptionCheck,
    spec: Speculation,
    engine: EngineEntry,
    serve: Options,
    target: CatalogModel,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> tuple[CatalogMethod | None, Options]:
    """The engine's entry of the method and the options that are as they should be; (None, {}) without one.

    ``spec`` is the profile's `speculation`, ``serve`` its options that were checked, ``target`` and ``draft`` the
    models that it names, ``models`` all of the catalogue. What is wrong is added to the findings of ``check``.
    """
    method = engine["methods"].get(spec["method"])
    if method is None:
        _refuse_method(check, spec["method"], engine)
        return None, {}
    check.version_has("speculation.method", f"'{spec['method']}'", method, method.get("reason", ""))
    _check_serve(check, spec["method"], method, engine, serve)
    options = check.options("speculation.options", spec.get("options") or {}, method.get("options", {}))
    named: CatalogMethod = {"id": spec["method"], **method}
    if draft_kind(method, draft) == "builtin" and not draft:
        check_builtin(check.findings, target, named, engine, models)
    else:
        _check_kind_of_draft(check, named, engine, target, draft, models)
    return named, options


def _refuse_method(check: OptionCheck, asked: str, engine: EngineEntry) -> None:
    """Add that ``asked`` is no method of the engine, or more than one."""
    methods = engine["methods"]
    listed = ", ".join(sorted(methods))
    if "," in asked or "+" in asked:
        check.findings.add(
            "several-methods",
            "speculation.method",
            f"'{asked}', more than one method",
            f"one of: {listed}: a report must say which one paid",
            "keep one, and make a second profile for the other",
        )
        return
    check.findings.add(
        "method-unsupported",
        "speculation.method",
        f"'{asked}', which {engine['name']} does not support",
        f"one of its methods: {listed}",
        did_you_mean(asked, methods),
    )


def _check_serve(check: OptionCheck, name: str, method: Method, engine: EngineEntry, serve: Options) -> None:
    """Add options of the server that this method needs otherwise, or that no speculation takes."""
    required = method.get("requires")
    reason = required["reason"] if required else ""
    for key, needed in ((required.get("serve") if required else None) or {}).items():
        if serve.get(key, needed) != needed:
            wanted = f"{needed}: {name} needs it ({reason})"
            check.findings.add("method-needs-option", f"serve.{key}", f"{serve[key]}", wanted, "remove the key")
    for key, limit in engine["speculation"].get("at_most", {}).items():
        if serve.get(key, limit["most"]) > limit["most"]:
            wanted = f"{limit['most']} with speculation: {limit['reason']}"
            check.findings.add("method-needs-option", f"serve.{key}", f"{serve[key]}", wanted, "remove the key")


def _check_kind_of_draft(
    check: OptionCheck,
    method: CatalogMethod,
    engine: EngineEntry,
    target: CatalogModel,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> None:
    """Add a draft that the method has no use for, lacks, or wants of another kind."""
    name, kind = method["id"], draft_kind(method, draft)
    if kind in _WITHOUT and draft:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}'",
            f"no draft: '{name}' {_WITHOUT[kind]}",
            "remove the key, or choose a method with a draft",
        )
    elif kind not in _WITHOUT and not draft:
        loaded = [key for key, model in models.items() if model["kind"] == kind and loads(engine, model)]
        own = [key for key in loaded if made_for(models[key], target["id"], head_kind(name, method))]
        check.findings.add(
            "draft-missing",
            "speculation.draft",
            "nothing",
            f"a {kind} for '{name}'",
            f"add one of: {', '.join(own or loaded)}",
        )
    elif draft and draft["kind"] != kind:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}', which is a {draft['kind']}",
            f"a {kind}: that is what '{name}' drafts with",
            "choose another draft or another method",
        )
