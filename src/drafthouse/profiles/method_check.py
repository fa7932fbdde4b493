"""Whether an engine has the method that a profile asks for, with its options and what it drafts with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import did_you_mean
from .engine_options import OptionCheck
from .heads import check_builtin, draft_kind, head_kind, made_for
from .model_check import loads

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, EngineEntry, Options
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
    methods = engine["methods"]
    method = methods.get(spec["method"])
    if method is None and ("," in spec["method"] or "+" in spec["method"]):
        check.findings.add(
            "several-methods",
            "speculation.method",
            f"'{spec['method']}', more than one method",
            f"one of: {', '.join(sorted(methods))}: a report must say which one paid",
            "keep one, and make a second profile for the other",
        )
        return None, {}
    if method is None:
        check.findings.add(
            "method-unsupported",
            "speculation.method",
            f"'{spec['method']}', which {engine['name']} does not support",
            f"one of its methods: {', '.join(sorted(methods))}",
            did_you_mean(spec["method"], methods),
        )
        return None, {}
    check.version_has("speculation.method", f"'{spec['method']}'", method, method.get("reason", ""))
    required = method.get("requires")
    for key, needed in ((required.get("serve") if required else None) or {}).items():
        if serve.get(key, needed) != needed:
            check.findings.add(
                "method-needs-option",
                f"serve.{key}",
                f"{serve[key]}",
                f"{needed}: {spec['method']} needs it ({required['reason'] if required else ''})",
                "remove the key",
            )
    for key, limit in engine["speculation"].get("at_most", {}).items():
        if serve.get(key, limit["most"]) > limit["most"]:
            check.findings.add(
                "method-needs-option",
                f"serve.{key}",
                f"{serve[key]}",
                f"{limit['most']} with speculation: {limit['reason']}",
                "remove the key",
            )
    options = check.options("speculation.options", spec.get("options") or {}, method.get("options", {}))
    kind = draft_kind(method, draft)
    named: CatalogMethod = {"id": spec["method"], **method}
    if kind == "builtin" and not draft:
        check_builtin(check.findings, target, named, engine, models)
    elif kind in _WITHOUT and draft:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}'",
            f"no draft: '{spec['method']}' {_WITHOUT[kind]}",
            "remove the key, or choose a method with a draft",
        )
    elif kind not in _WITHOUT and not draft:
        loaded = [key for key, model in models.items() if model["kind"] == kind and loads(engine, model)]
        own = [key for key in loaded if made_for(models[key], target["id"], head_kind(spec["method"], method))]
        check.findings.add(
            "draft-missing",
            "speculation.draft",
            "nothing",
            f"a {kind} for '{spec['method']}'",
            f"add one of: {', '.join(own or loaded)}",
        )
    elif draft and draft["kind"] != kind:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}', which is a {draft['kind']}",
            f"a {kind}: that is what '{spec['method']}' drafts with",
            "choose another draft or another method",
        )
    return named, options
