"""Which engines can choose the number of drafted tokens by batch size: for the resolver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import listing
from ..core.versions import known
from .switch_options import OPTIONS

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogEngine, CatalogMethod
    from drafthouse.profiles.resolved_types import BatchSchedule


def support(engine: CatalogEngine, method: CatalogMethod, version: str) -> BatchSchedule:
    """Return how an engine's version can switch this method by batch size.

    The result has ``option`` (the profile's word below `speculation.options`) and ``form`` (`switch_options.ROWS` or
    `LARGEST`), both None where it cannot, and ``why`` then.
    """
    options = method.get("options") or {}
    has = [name for name in OPTIONS if name in options]
    for name in has:
        if known(version, options[name]):
            return {"option": name, "form": OPTIONS[name], "why": None}
    told = f"{engine['name']} {version} cannot switch '{method['id']}' by batch size"
    since = [f"{name} came in {options[name]['since']}" for name in has if "since" in options[name]]
    return {"option": None, "form": None, "why": f"{told}: {listing(since)}" if since else told}
