"""Check that the engine has the profile's method, with its options, and that the draft is of the right kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import did_you_mean
from .draft_compat import drafts_to_name
from .engine_options import LOSSLESS, OptionCheck, lossy_word
from .heads import check_builtin, draft_kind
from .model_check import loads

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, EngineEntry, Method, Options
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry
    from drafthouse.profiles.profile_types import Speculation

#: By kind of draft, how a method drafts that needs no separate model or head.
_NO_SEPARATE_DRAFT: Final[Mapping[str, str]] = {
    "lookup": "looks its tokens up in the text",
    "builtin": "drafts with the head inside the target",
}


def check_method(
    check: OptionCheck,
    spec: Speculation,
    *,
    engine: EngineEntry,
    serve: Options,
    target: CatalogModel,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> tuple[CatalogMethod | None, Options]:
    """The engine's entry of the method, and its valid options; (None, {}) if the engine lacks it. Adds problems.

    ``spec``: the profile's `speculation`. ``serve``: its checked server options. ``draft``: None if it names none.
    ``models``: all of the catalogue, for drafts to use instead.
    """
    method = engine["methods"].get(spec["method"])
    if method is None:
        _refuse_method(check, spec["method"], engine)
        return None, {}
    check.check_version("speculation.method", f"'{spec['method']}'", method, method.get("reason", ""))
    _check_serve(check, spec["method"], method, engine, serve)
    given = _lossless(check, spec.get("options") or {}, engine)
    options = check.options("speculation.options", given, method.get("options", {}))
    if "also" in spec:
        _check_also(check, spec, engine)
    named: CatalogMethod = {"id": spec["method"], **method}
    if draft_kind(method, draft) == "builtin" and not draft:
        check_builtin(check.findings, target=target, method=named, engine=engine, models=models)
    else:
        _check_kind_of_draft(check, method=named, engine=engine, target=target, draft=draft, models=models)
    return named, options


def _lossless(check: OptionCheck, given: object, engine: EngineEntry) -> object:
    """The ``given`` options without those that let answers differ from the target's; adds a problem for each."""
    if not isinstance(given, Mapping):
        return given
    lossless = {}
    for key, value in given.items():
        why = lossy_word(engine, key, value)
        if why:
            where = f"speculation.options.{key}"
            check.findings.add("lossy-verification", where, f"{value!r}: {why}", LOSSLESS, "remove the key")
        else:
            lossless[key] = value
    return lossless


def _refuse_method(check: OptionCheck, method: str, engine: EngineEntry) -> None:
    """Add a problem: ``method`` is not a method of the engine, or is more than one."""
    methods = engine["methods"]
    listed = ", ".join(sorted(methods))
    if "," in method or "+" in method:
        do = "keep one, and make a second profile for the other"
        if "joins" in engine["speculation"]:
            do = "keep one, and name a lookup beside it in speculation.also"
        check.findings.add(
            "several-methods",
            "speculation.method",
            f"'{method}', more than one method",
            f"one of: {listed}: a report must say which one paid",
            do,
        )
        return
    check.findings.add(
        "method-unsupported",
        "speculation.method",
        f"'{method}', which {engine['name']} does not support",
        f"one of its methods: {listed}",
        did_you_mean(method, methods),
    )


def _check_also(check: OptionCheck, spec: Speculation, engine: EngineEntry) -> None:
    """Add a problem if the engine cannot run ``also`` beside the method, or if ``also`` is no lookup."""
    also = spec["also"]
    methods = engine["methods"]
    lookups = sorted(key for key, entry in methods.items() if entry["draft"] == "lookup" and key != spec["method"])
    if "joins" not in engine["speculation"]:
        needed = f"nothing: {engine['name']} runs one method at a time"
        do = "remove the key"
    elif also not in lookups:
        needed = f"a lookup beside '{spec['method']}': {', '.join(lookups)}"
        do = did_you_mean(also, lookups)
    else:
        check.check_version("speculation.also", f"'{also}'", methods[also], methods[also].get("reason", ""))
        return
    check.findings.add("several-methods", "speculation.also", f"'{also}'", needed, do)


def _check_serve(check: OptionCheck, name: str, method: Method, engine: EngineEntry, serve: Options) -> None:
    """Add problems of server options that the method needs at another value, or that exceed speculation's limit.

    An option that the profile leaves out is no problem. ``name``: the method's.
    """
    if required := method.get("requires"):
        for key, needed in required.get("serve", {}).items():
            if serve.get(key, needed) != needed:
                wanted = f"{needed}: {name} needs it ({required['reason']})"
                check.findings.add("method-needs-option", f"serve.{key}", f"{serve[key]}", wanted, "remove the key")
    for key, limit in engine["speculation"].get("at_most", {}).items():
        if serve.get(key, limit["most"]) > limit["most"]:
            wanted = f"{limit['most']} with speculation: {limit['reason']}"
            check.findings.add("method-needs-option", f"serve.{key}", f"{serve[key]}", wanted, "remove the key")


def _check_kind_of_draft(
    check: OptionCheck,
    *,
    method: CatalogMethod,
    engine: EngineEntry,
    target: CatalogModel,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> None:
    """Add a problem if the draft is missing, not needed, or of another kind than the method needs."""
    name = method["id"]
    kind = draft_kind(method, draft)
    if kind in _NO_SEPARATE_DRAFT and draft:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}'",
            f"no draft: '{name}' {_NO_SEPARATE_DRAFT[kind]}",
            "remove the key, or choose a method with a draft",
        )
    elif kind not in _NO_SEPARATE_DRAFT and not draft:
        loadable = {key: model for key, model in models.items() if model["kind"] == kind and loads(engine, model)}
        do = f"name one of your own (drafthouse model add): the catalogue has none for '{target['id']}'"
        if names := drafts_to_name(method, target, loadable):
            do = f"add one of: {', '.join(names)}"
        check.findings.add("draft-missing", "speculation.draft", "nothing", f"a {kind} for '{name}'", do)
    elif draft and draft["kind"] != kind:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}', which is a {draft['kind']}",
            f"a {kind}: that is what '{name}' drafts with",
            "choose another draft or another method",
        )
