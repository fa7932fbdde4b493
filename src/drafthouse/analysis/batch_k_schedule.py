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

from ..bench.sweep.ladder_types import Crossover, Ladder, LevelVerdict, Schedule, Tried, TriedKind
from ..core.format import listing, shown_level, times, times_span
from ..profiles.resolved_types import BatchSchedule, ResolvedMethod, ResolvedProfile
from ..profiles.switch_options import LARGEST, OPTIONS, ROWS
from .crossover_text import load
from .verdict_text import PAYS

CLOSED = "closed"
Levels = tuple[LevelVerdict, LevelVerdict]
"""A level without the switch and with it."""


def offer(ladder: Ladder, resolved: ResolvedProfile) -> Schedule:
    """Return the schedule that a measured ladder suggests, as it stands in its ``schedule``; plain data.

    ``offered`` are rows of [first batch size, last, K] (None where there is nothing to offer, with ``why``),
    ``settings`` the same in the engine's form, ``overrides`` what turns the profile into one that has it and
    ``command`` the run that measures it. ``ladder`` must have its ``crossover``. ``tried`` is None until then.
    """
    switch = resolved.get("batch_schedule")
    crossover = ladder.get("crossover") or {}
    declared = [kind for kind in resolved["experiment"].get("kinds") or [] if kind in crossover]
    kinds = declared or list(crossover)
    method = resolved["method"]
    if why := _refusal(ladder, switch, method, {kind: crossover[kind] for kind in kinds}):
        return _no_offer(why)
    crossing = [kind for kind in kinds if not crossover[kind]["reaches_top"]]
    # A server cannot tell kinds of work apart: the first one to cross decides.
    ends = {kind: until for kind in crossing if (until := crossover[kind]["pays_until"]) is not None}
    first = min(ends, key=lambda kind: ends[kind])
    most = math.floor(ends[first])
    least = max(1, *(math.ceil(crossover[kind]["pays_from"] or 1) for kind in kinds))
    if most < least:
        return _no_offer(f"no batch size pays on all of {listing(kinds)}")
    rows = _rows(least, most, max(most + 1, math.ceil(max(ladder["levels"]))), method["num_speculative_tokens"])
    option = str(switch["option"])
    settings = rows if switch["form"] == ROWS else most
    overrides = {"speculation": {"options": {option: settings}}}
    why = f"{first} pays until about {load(ends[first])} concurrent requests"
    if least > 1 and switch["form"] == LARGEST:
        why += f"; {option} has no lower limit, so batches below {least} are drafted for too"
    return {
        "offered": rows,
        "option": option,
        "settings": settings,
        "overrides": overrides,
        "command": _command(str(resolved["profile"]), overrides),
        "tried": None,
        "why": why,
    }


def _no_offer(why: str) -> Schedule:
    return {
        "offered": None, "option": None, "settings": None, "overrides": None, "command": None, "tried": None,
        "why": why,
    }  # fmt: skip


def _refusal(
    ladder: Ladder,
    switch: BatchSchedule | None,
    method: ResolvedMethod,
    crossover: Mapping[str, Crossover],
) -> str | None:
    """Return why there is no schedule to offer, or None."""
    if not switch or not switch.get("option"):
        return str((switch and switch.get("why")) or "it is not known whether this engine can switch by batch size")
    if set(OPTIONS) & set(method.get("settings") or {}):
        return "the profile already switches by batch size, and was measured that way"
    if ladder.get("load") != CLOSED:
        return "an open loop sets the request rate, not the batch size: measure a closed loop"
    lost = [kind for kind, one in crossover.items() if one["word"] != PAYS]
    if not crossover or lost:
        return f"{listing(lost) or 'nothing'} {'was measured' if not lost else 'pays at no load'}: nothing to switch"
    if all(one["reaches_top"] for one in crossover.values()):
        told = f"it still pays at {shown_level(max(ladder['levels']))} requests, the most that was measured"
        between = _costs_between(crossover)
        return f"{told}; no single switch avoids the cost in between, at {listing(between)}" if between else told
    return None


def _costs_between(crossover: Mapping[str, Crossover]) -> list[str]:
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


def _command(profile: str, overrides: Mapping[str, object]) -> str:
    """Return the line that measures the profile with the schedule; its result has a key of its own."""
    words = json.dumps({"overrides": overrides}, separators=(",", ":")).replace('"', '\\"')
    return f"make {profile} ARGS=\"-e '{words}'\""


# --- what came of it --------------------------------------------------------------------------------


def tried(plain: Ladder, switched: Ladder) -> Tried:
    """Return what the schedule did, from the ladder without it and the one with it; both with their ``crossover``.

    For each kind ``levels`` (the speed-up over the own baseline without and with the switch), ``keeps`` (it still
    pays where it paid for sure), ``mends`` (nothing costs any more; None where nothing did) and ``sentence``.
    """
    one, two = plain["crossover"] or {}, switched["crossover"] or {}
    return {"kinds": {kind: _compared(one[kind], two[kind]) for kind in one if kind in two}}


def _compared(plain: Crossover, switched: Crossover) -> TriedKind:
    with_it = {one["level"]: one for one in switched["levels"]}
    pairs = [(one, with_it[one["level"]]) for one in plain["levels"] if one["level"] in with_it]
    sure = [(one, two) for one, two in pairs if one["word"] == PAYS]
    costly = [(one, two) for one, two in pairs if one["word"] == "costs"]
    return {
        "levels": [
            {"level": one["level"], "plain": one["speedup"], "switched": two["speedup"], "word": two["word"]}
            for one, two in pairs
        ],
        "keeps": all(two["word"] == PAYS for _, two in sure) if sure else None,
        "mends": all(two["word"] != "costs" for _, two in costly) if costly else None,
        "sentence": _told(sure, costly),
    }


def _told(sure: Sequence[Levels], costly: Sequence[Levels]) -> str:
    """Return the lowest level that paid and the highest that cost, with the switch and without it."""
    parts = []
    for pairs, place in ((sure, 0), (costly, -1)):
        if pairs:
            one, two = pairs[place]
            without = times(one["speedup"]["median"])
            parts.append(f"{times_span(two['speedup'])} at {shown_level(one['level'])} ({without} without it)")
    return f"with the switch the speed-up is {' and '.join(parts)}" if parts else "no level to compare"
