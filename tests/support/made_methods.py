"""A shipped profile with another method, and with a draft made for it where the catalogue has none."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolved_types import ResolvedProfile
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

HEAD = "a-made-head"


def with_method(
    profile: str,
    method: str,
    version: str | None = None,
    tokens: int = 3,
    options: Mapping[str, object] | None = None,
    head: Mapping[str, object] | None = None,
    also: str = "",
) -> ResolvedProfile:
    """``profile`` resolved with ``method``, and with ``also`` beside it; DrafthouseError as it is.

    A method with a head gets one of the size of the profile's own draft, made for its target; the target of one that
    drafts with a head inside it gets that (``head`` is laid over it).
    """
    catalog = copy.deepcopy(_shipped()[0])
    own: Any = catalog.profiles[profile]
    entry: Any = catalog.engines[own["engine"]]["methods"][method]
    models: Any = catalog.models
    if entry["draft"] == "builtin":
        models[own["target"]]["builtin_head"] = {
            "kind": entry.get("head", method),
            "layers": 1,
            "tensors": ["*"],
            **(head or {}),
        }
    speculation: dict[str, Any] = {"method": method, "num_speculative_tokens": tokens, "options": dict(options or {})}
    if entry["draft"] == "head":
        drawn = {key: value for key, value in models[own["speculation"]["draft"]].items() if key != "works_on"}
        models[HEAD] = {**drawn, "kind": "head", "head_for": own["target"], "head_method": entry.get("head", method)}
        speculation["draft"] = HEAD
    if also:
        speculation["also"] = also
    own["speculation"] = speculation
    overrides = {"engine_version": version} if version else {}
    return resolve(catalog, profile, site_of_inventory("workstation"), _shipped()[1], overrides)


@functools.cache
def _shipped() -> tuple[Catalog, dict[str, list[str]]]:
    """The catalogue with its profiles, and the kinds of every suite."""
    return load_catalog(ROOT), {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
