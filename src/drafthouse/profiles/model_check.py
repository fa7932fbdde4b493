"""Check that an engine can load a profile's models: kind, format, layout, and the version that supports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .engine_options import OptionCheck
from .heads import made_for
from .supply import check_pickles

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine, EngineEntry
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry


def loads(engine: EngineEntry, model: ModelEntry) -> bool:
    """True if an engine loads weights of the model's format and layout."""
    return model["format"] in engine["formats"] and model.get("layout") not in engine.get("unread_layouts", ())


def check_models(
    check: OptionCheck,
    *,
    engine: CatalogEngine,
    target: CatalogModel,
    draft: CatalogModel | None,
    models: Mapping[str, ModelEntry],
) -> None:
    """Add to the findings of ``check`` why the engine cannot load the target or the draft.

    ``draft``: None if the profile names none. ``models``: all of the catalogue, for heads to use instead.
    """
    family = engine.get("family", engine["id"])
    if target["kind"] != "model":
        check.findings.add(
            "target-is-a-draft",
            "target",
            f"'{target['id']}', which is a {target['kind']}",
            "a model",
            "name the model it is for",
        )
    for path, model in (("target", target), ("speculation.draft", draft)):
        if model is None:
            continue
        if family in model.get("since", {}):
            check.check_version(path, model["name"], {"since": model["since"][family]})
        check_pickles(check.findings, path, model)
        if model.get("layout") in engine.get("unread_layouts", ()):
            loadable = [
                key
                for key, head in models.items()
                if "head_method" in model and made_for(head, target["id"], model["head_method"]) and loads(engine, head)
            ]
            check.findings.add(
                "weights-format",
                path,
                f"'{model['id']}', which is in the layout of {model['layout']}",
                f"weights that {engine['name']} loads: it does not know that layout",
                f"use one of: {', '.join(loadable)}" if loadable else "drafthouse model add, with another head for it",
            )
        if model["format"] not in engine["formats"]:
            check.findings.add(
                "weights-format",
                path,
                f"weights in the format {model['format']} ('{model['id']}')",
                f"a format that {engine['name']} reads: {', '.join(engine['formats'])}",
                "choose another model or another engine",
            )
