"""Whether an engine has the method that a profile asks for, with its options and what it drafts with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from .engine_options import OptionCheck

if TYPE_CHECKING:
    from ..engines.entry_types import CatalogMethod, EngineEntry, Options
    from .catalog_types import CatalogModel, ModelEntry
    from .profile_types import Speculation


def check_method(
    check: OptionCheck,
    spec: Speculation,
    engine: EngineEntry,
    serve: Options,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> tuple[CatalogMethod | None, Options]:
    """Return the engine's entry of the method and the options that are as they should be; (None, {}) without one.

    ``spec`` is the profile's `speculation`, ``serve`` its options that were checked, ``draft`` the model that it
    names, ``models`` all of the catalogue. What is wrong is added to the findings of ``check``.
    """
    methods = engine["methods"]
    method = methods.get(spec["method"])
    if method is None and ("," in spec["method"] or "+" in spec["method"]):
        check.findings.add(
            "several-methods",
            "speculation.method",
            f"'{spec['method']}', more than one method",
            f"one of: {', '.join(sorted(methods))}: a report must say which of them paid",
            "keep one, and make a second profile for the other",
        )
        return None, {}
    if method is None:
        check.findings.add(
            "method-unsupported",
            "speculation.method",
            f"'{spec['method']}', which {engine['name']} cannot do",
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
    options = check.options("speculation.options", spec.get("options") or {}, method.get("options", {}))
    if method["draft"] == "lookup" and draft:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}'",
            f"no draft: '{spec['method']}' looks its tokens up in the text",
            "remove the key, or choose a method with a draft",
        )
    elif method["draft"] != "lookup" and not draft:
        fitting = [key for key, model in models.items() if model["kind"] == method["draft"]]
        check.findings.add(
            "draft-missing",
            "speculation.draft",
            "nothing",
            f"a {method['draft']} for '{spec['method']}'",
            f"add one of: {', '.join(fitting)}",
        )
    elif draft and draft["kind"] != method["draft"]:
        check.findings.add(
            "draft-of-another-method",
            "speculation.draft",
            f"'{draft['id']}', which is a {draft['kind']}",
            f"a {method['draft']}: that is what '{spec['method']}' drafts with",
            "choose another draft or another method",
        )
    return {"id": spec["method"], **method}, options
