"""Speculation that is switched off by batch size: what an engine can do, what a ladder suggests, what came of it.

Above the crossover speculation costs. An engine that can choose the number of drafted tokens by batch size keeps the
gain below it and loses nothing above. In a closed loop the batch is the number of concurrent requests, so the
crossover is the batch size at which to switch. The switch has a price of its own (vLLM's V1 runner gives up full CUDA
graphs for it), so that an offer is worth nothing before it was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.format import listing, shown_level, times, times_span
from ..profiles.switch_options import LARGEST, OPTIONS, ROWS
from .crossover_text import load
from .verdict_text import PAYS

CLOSED = "closed"


def offer(ladder: Mapping[str, Any], resolved: Mapping[str, Any]) -> Any:
    """Return the schedule that a measured ladder suggests, as it stands in its ``schedule``; plain data.

    ``offered`` are rows of [first batch size, last, K] (None where there is nothing to offer, with ``why``),
    ``settings`` the same in the engine's form, ``overrides`` what turns the profile into one that has it and
    ``command`` the run that measures it. ``ladder`` must have its ``crossover``. ``tried`` is None until then.
    """
    switch = resolved.get("batch_schedule") or {}
    empty = dict.fromkeys(("offered", "option", "settings", "overrides", "command", "tried"))
    crossover = ladder.get("crossover") or {}
    declared = [kind for kind in resolved["experiment"].get("kinds") or [] if kind in crossover]
    kinds = declared or list(crossover)
    method = resolved["method"]
    if why := _refusal(ladder, switch, method, {kind: crossover[kind] for kind in kinds}):
        return {**empty, "why": why}
    crossing = [kind for kind in kinds if not crossover[kind]["reaches_top"]]
    # A server cannot tell kinds of work apart: the first one to cross decides.
    first = min(crossing, key=lambda kind: float(crossover[kind]["pays_until"]))
    most = math.floor(crossover[first]["pays_until"])
    least = max(1, *(math.ceil(crossover[kind]["pays_from"] or 1) for kind in kinds))
    if most < least:
        return {**empty, "why": f"no batch size pays on all of {listing(kinds)}"}
    rows = _rows(least, most, max(most + 1, math.ceil(max(ladder["levels"]))), method["num_speculative_tokens"])
    option = str(switch["option"])
    settings = rows if switch["form"] == ROWS else most
    overrides = {"speculation": {"options": {option: settings}}}
    why = f"{first} pays until about {load(crossover[first]['pays_until'])} concurrent requests"
    if least > 1 and switch["form"] == LARGEST:
        why += f"; {option} has no lower end, so the batches below {least} are drafted for as well"
    return {
        **empty,
        "offered": rows,
        "option": option,
        "settings": settings,
        "overrides": overrides,
        "command": _command(str(resolved["profile"]), overrides),
        "why": why,
    }


def _refusal(
    ladder: Mapping[str, Any],
    switch: Mapping[str, Any],
    method: Mapping[str, Any],
    crossover: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """Return why there is no schedule to offer, or None."""
    if not switch.get("option"):
        return str(switch.get("why") or "it is not known whether this engine can switch by batch size")
    if set(OPTIONS) & set(method.get("settings") or {}):
        return "the profile switches by batch size already: what was measured is with it"
    if ladder.get("load") != CLOSED:
        return "an open loop sets the rate of the requests and not the batch: measure a closed one"
    lost = [kind for kind, one in crossover.items() if one["word"] != PAYS]
    if not crossover or lost:
        return f"{listing(lost) or 'nothing'} {'was measured' if not lost else 'pays at no load'}: nothing to switch"
    if all(one["reaches_top"] for one in crossover.values()):
        told = f"it still pays at {shown_level(max(ladder['levels']))} requests, the most that was measured"
        between = _costs_between(crossover)
        return f"{told}; what costs in between, at {listing(between)}, no single switch ends" if between else told
    return None


def _costs_between(crossover: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the levels that cost although speculation pays below and above them."""
    found = {
        level["level"]
        for one in crossover.values()
        for level in one["levels"]
        if level["level"] in one["gaps"] and level["word"] == "costs"
    }
    return [shown_level(level) for level in sorted(found)]


def _rows(least: int, most: int, top: int, tokens: int) -> list[list[int]]:
    """Return rows that follow each other from 1; in vLLM the last one holds for all above it as well."""
    below = [[1, least - 1, 0]] if least > 1 else []
    return [*below, [least, most, tokens], [most + 1, top, 0]]


def _command(profile: str, overrides: Mapping[str, Any]) -> str:
    """Return the line that measures the profile with the schedule; its result has a key of its own."""
    words = json.dumps({"overrides": overrides}, separators=(",", ":")).replace('"', '\\"')
    return f"make {profile} ARGS=\"-e '{words}'\""


# --- what came of it --------------------------------------------------------------------------------


def tried(plain: Mapping[str, Any], switched: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the schedule did, from the ladder without it and the one with it; both with their ``crossover``.

    For each kind ``levels`` (the speed-up over the own baseline without and with the switch), ``keeps`` (it still
    pays where it paid for sure), ``mends`` (nothing costs any more; None where nothing did) and ``sentence``.
    """
    kinds = [kind for kind in plain["crossover"] if kind in switched["crossover"]]
    return {"kinds": {kind: _compared(plain["crossover"][kind], switched["crossover"][kind]) for kind in kinds}}


def _compared(plain: Mapping[str, Any], switched: Mapping[str, Any]) -> dict[str, Any]:
    with_it = {one["level"]: one for one in switched["levels"]}
    pairs = [(one, with_it[one["level"]]) for one in plain["levels"] if one["level"] in with_it]
    sure = [(one, two) for one, two in pairs if one["word"] == PAYS]
    costly = [(one, two) for one, two in pairs if one["word"] == "costs"]
    found: dict[str, Any] = {
        "levels": [
            {"level": one["level"], "plain": one["speedup"], "switched": two["speedup"], "word": two["word"]}
            for one, two in pairs
        ],
        "keeps": all(two["word"] == PAYS for _, two in sure) if sure else None,
        "mends": all(two["word"] != "costs" for _, two in costly) if costly else None,
    }
    return found | {"sentence": _told(sure, costly)}


def _told(sure: Sequence[tuple[Any, Any]], costly: Sequence[tuple[Any, Any]]) -> str:
    """Return the lowest level that paid and the highest that cost, with the switch and without it."""
    parts = []
    for pairs, place in ((sure, 0), (costly, -1)):
        if pairs:
            one, two = pairs[place]
            without = times(one["speedup"]["median"])
            parts.append(f"{times_span(two['speedup'])} at {shown_level(one['level'])} ({without} without it)")
    return f"with the switch the speed-up is {' and '.join(parts)}" if parts else "no level to compare"
