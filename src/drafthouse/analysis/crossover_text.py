"""The crossover in words: one sentence a kind of work, and the reasons for it."""

from __future__ import annotations

from collections.abc import Sequence

from ..bench.stats import Estimated
from ..bench.sweep.ladder_types import Crossover, LevelVerdict
from ..core.format import DASH, count, listing, percent, shown_level, times, times_span
from .verdict_text import CANNOT_SAY, PAYS

#: A closed loop counts requests that are under way at once; an open one requests a second.
CLOSED_UNIT = "concurrent requests"


def sentence(one: Crossover, unit: str = CLOSED_UNIT) -> str:
    """Return the verdict over the load for one kind of work.

    "pays 1.80x (1.75 to 1.86) for one user, until about 12 concurrent requests (9 to 14); costs 20 % beyond (at
    16)", with signs. ``one`` is an entry of `crossover.fill`, ``unit`` the ladder's.
    """
    levels = one["levels"]
    if one["word"] == CANNOT_SAY:
        return f"{CANNOT_SAY} up to which load it pays: {one['reasons'][0]}"
    if one["word"] != PAYS:
        where = _span([level["level"] for level in levels], unit)
        return f"{one['word']} at {where}: {_without_gain(one, unit)}{_of_the_ab(one, unit)}"
    quoted = next(level for level in levels if level["level"] == one["quoted"])
    told = f"{PAYS} {times_span((quoted.get('settled') or quoted)['speedup'])} {_at(quoted['level'], unit)}"
    if one["pays_from"] is not None:
        told += f", from about {load(one['pays_from'])}"
    if one["reaches_top"]:
        told += f", and up to {shown_level(levels[-1]['level'])} {unit}, the most that was measured"
        surely = one["interval"][0] if one["interval"] else None
        if surely is not None:
            told += f" (surely until {load(surely)})"
    elif one["pays_until"] is not None and one["interval"]:
        told += f", until about {load(one['pays_until'])} {unit}{_interval(one['interval'], levels)}"
    if one["gaps"]:
        told += f", but not at {listing([load(level) for level in one['gaps']])}{_cost_of_gaps(one)}"
    return f"{told}{_beyond(one)}{_of_the_ab(one, unit)}"


def reasons(one: Crossover) -> list[str]:
    """Return what the word of a kind rests on, the weightiest first."""
    levels, missing, unit = one["levels"], one["missing"], one["unit"]
    if not levels:
        why = listing(list(dict.fromkeys(str(gap["why"]) for gap in missing))) or "nothing was measured"
        return [f"no level has a good measurement in both arms ({why})"]
    found = []
    most = max(level["speedup"]["n"] for level in levels)
    if one["word"] == CANNOT_SAY:
        few = most < one["prompts_needed"]
        found.append(
            f"{count(most, 'prompt')} at most, and {one['prompts_needed']} are needed"
            if few
            else f"a gain that starts above the lowest of {count(one['planned'], 'level')} needs "
            f"{count(one['prompts_needed_above'], 'prompt')}, and there are {most}"
        )
    else:
        found += _bound(one)
    starts = one["starts"]
    seen = f"{count(starts['rounds'], 'round')} and the usual spread" if starts["rounds"] > 1 else "one round"
    found.append(
        f"every interval includes the spread of server starts: {percent(starts['sd'])} (standard deviation, "
        f"{'from' if starts['rounds'] > 1 else 'assumed for'} {seen})"
    )
    found += [f"nothing to compare {_at(gap['level'], unit)}: {gap['why']}" for gap in missing]
    found += [
        f"the box was not steady {_at(level['level'], unit)}: the baseline against itself gives "
        f"{times_span(level['control'])}"
        for level in levels
        if level["control"] and _unsteady(level["control"], one["threshold"])
    ]
    return found


def load(value: float) -> str:
    """Return a load with two digits, as one says "about 12": ``12``, ``130``, ``1.4``, ``0.25``."""
    digits = 1
    size = abs(value)
    while size >= 10:
        size, digits = size / 10, digits - 1
    while 0 < size < 1:
        size, digits = size * 10, digits + 1
    text = f"{round(value, digits):.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bound(one: Crossover) -> list[str]:
    """Return the bound that a claim rests on: of the level that is quoted, or of the best one where none is."""
    asked = [level for level in one["levels"] if not level.get("settled")]
    quoted = [level for level in asked if level["level"] == one.get("quoted")]
    best = quoted[0] if quoted else max(asked, key=lambda level: float(level["corrected"]["low"]), default=None)
    if best is None or (one["word"] == PAYS and not quoted):
        return []
    bound = best["corrected"]
    return [
        f"the lower {100 * bound['confidence']:.4g} % bound {_at(best['level'], one['unit'])} is "
        f"{times(bound['low'], 3)}, {'above' if quoted else 'not above'} {times(one['threshold'])} "
        f"({count(one['planned'], 'level')}, tested from the lowest up: "
        f"the chance of claiming any gain falsely is 5 % at most)"
    ]


def _of_the_ab(one: Crossover, unit: str) -> str:
    """Return whose word it is at the level where the A/B and the ladder said different things."""
    for level in one["levels"]:
        if settled := level.get("settled"):
            where = f"; {_at(level['level'], unit)} the A/B decides"
            if settled["word"] == PAYS:
                return f"{where}, though the ladder alone shows {times_span(level['speedup'])}"
            return f"{where}: {settled['word']}, {times_span(settled['speedup'])}"
    return ""


def _at(level: float, unit: str) -> str:
    if unit != CLOSED_UNIT:
        return f"at {shown_level(level)} {unit}"
    return "for one user" if level == 1 else f"at {shown_level(level)} {unit}"


def _span(levels: Sequence[float], unit: str) -> str:
    if len(levels) == 1:
        return f"{shown_level(levels[0])} {unit}"
    return f"{shown_level(levels[0])} to {shown_level(levels[-1])} {unit}"


def _interval(interval: Sequence[float | None], levels: Sequence[LevelVerdict]) -> str:
    """Return the interval in brackets; an open end is said as outside of the ladder."""
    low, high = interval
    lower = f"below {shown_level(levels[0]['level'])}" if low is None else load(low)
    upper = f"beyond {shown_level(levels[-1]['level'])}" if high is None else load(high)
    return f" ({lower} to {upper})" if low is None or high is None else f" ({lower}{DASH}{upper})"


def _beyond(one: Crossover) -> str:
    """Return what happens above the crossover: a cost where there is one, and nothing where the ladder ends."""
    if one["reaches_top"]:
        return ""
    first, last = one["beyond"], one.get("at_the_top")
    if not first:
        return "; no clear difference beyond"
    places = f"at {shown_level(first['level'])}"
    if last and last["level"] != first["level"]:
        places += f"; {_cost(last['change'])} at {shown_level(last['level'])}"
    told = f"; costs {_cost(first['change'])} beyond ({places})"
    # A median above the bar whose interval is not: neither a gain to claim nor a level to pass over.
    unsure = [
        shown_level(level["level"])
        for level in one["levels"]
        if level["level"] > first["level"] and level["speedup"]["median"] > one["threshold"]
    ]
    return f"{told}; unclear again at {listing(unsure)}" if unsure else told


def _cost_of_gaps(one: Crossover) -> str:
    """Return what the levels in between cost, in brackets: ``(costs 20 % at 4; 30 % at 8)``."""
    costly = [
        f"{_cost(level['speedup']['median'] - 1.0)} at {shown_level(level['level'])}"
        for level in one["levels"]
        if level["level"] in one["gaps"] and level["word"] == "costs"
    ]
    return f" (costs {'; '.join(costly)})" if costly else ""


def _cost(change: float) -> str:
    return f"{-100 * change:.0f} %"


def _without_gain(one: Crossover, unit: str) -> str:
    """Return what the levels of a ladder that does not pay show."""
    levels = one["levels"]
    costly = [level for level in levels if level["word"] == "costs"]
    alone = [level for level in levels if level["word"] == PAYS]
    if costly:
        worst = min(costly, key=lambda level: float(level["speedup"]["median"]))
        told = f"costs {100 - 100 * worst['speedup']['median']:.0f} % {_at(worst['level'], unit)}"
        return told if len(levels) == len(costly) == 1 else f"{told} at worst"
    if alone:
        best = max(alone, key=lambda level: float(level["speedup"]["low"]))
        return (
            f"{times_span(best['speedup'])} {_at(best['level'], unit)} is not significant across "
            f"{count(one['planned'], 'level')}"
        )
    return "no clear difference"


def _unsteady(control: Estimated, threshold: float) -> bool:
    return control["low"] > threshold or control["high"] < 1 / threshold
