"""The crossover in words: one sentence a kind of work, and the reasons for it."""

from __future__ import annotations

import math

from ..bench.sweep.ladder_types import Crossover
from ..core.format import DASH, count, listing, percent, shown_level, times, times_span
from .words import CANNOT_SAY, PAYS

#: A closed loop counts requests that are under way at once; an open one requests a second.
CLOSED_UNIT = "concurrent requests"


def sentence(one: Crossover, unit: str = CLOSED_UNIT) -> str:
    """The verdict over the load for one kind of work.

    "pays 1.80x (1.75 to 1.86) for one user, until about 12 concurrent requests (9 to 14); costs 20 % beyond (at
    16)", with signs. ``one`` is an entry of `crossover.fill`, ``unit`` the ladder's.
    """
    levels = one["levels"]
    if one["word"] == CANNOT_SAY:
        return f"{CANNOT_SAY} up to which load it pays: {one['reasons'][0]}"
    lowest, highest = shown_level(levels[0]["level"]), shown_level(levels[-1]["level"])
    if one["word"] != PAYS:
        where = lowest if len(levels) == 1 else f"{lowest} to {highest}"
        return f"{one['word']} at {where} {unit}: {_without_gain(one, unit)}{_of_the_ab(one, unit)}"
    quoted = next(level for level in levels if level["level"] == one["quoted"])
    told = f"{PAYS} {times_span((quoted.get('settled') or quoted)['speedup'])} {_at(quoted['level'], unit)}"
    if one["pays_from"] is not None:
        told += f", from about {load(one['pays_from'])}"
    told += _until(one, unit, lowest, highest)
    if one["gaps"]:
        told += f", but not at {listing(list(map(load, one['gaps'])))}{_cost_of_gaps(one)}"
    return f"{told}{_beyond(one)}{_of_the_ab(one, unit)}"


def _until(one: Crossover, unit: str, lowest: str, highest: str) -> str:
    """Up to which load it pays, with the interval: an end of it that is open lies outside of the ladder."""
    low, high = one["interval"] or (None, None)
    if one["reaches_top"]:
        surely = f" (surely until {load(low)})" if low is not None else ""
        return f", and up to {highest} {unit}, the most that was measured{surely}"
    if one["pays_until"] is None or not one["interval"]:
        return ""
    lower = f"below {lowest}" if low is None else load(low)
    upper = f"beyond {highest}" if high is None else load(high)
    joined = " to " if low is None or high is None else DASH
    return f", until about {load(one['pays_until'])} {unit} ({lower}{joined}{upper})"


def reasons(one: Crossover) -> list[str]:
    """What the word of a kind rests on, the weightiest first."""
    levels, missing, unit = one["levels"], one["missing"], one["unit"]
    if not levels:
        why = listing(list(dict.fromkeys(str(gap["why"]) for gap in missing))) or "nothing was measured"
        return [f"no level has a good measurement in both arms ({why})"]
    found = _bound(one)
    if one["word"] == CANNOT_SAY:
        most = max(level["speedup"]["n"] for level in levels)
        found = [f"{count(most, 'prompt')} at most, and {one['prompts_needed']} are needed"]
    rounds = one["starts"]["rounds"]
    seen = f"from {count(rounds, 'round')} and the usual spread" if rounds > 1 else "assumed for one round"
    spread = percent(one["starts"]["sd"])
    found.append(f"every interval includes the spread of server starts: {spread} (standard deviation, {seen})")
    for gap in missing:
        found.append(f"nothing to compare {_at(gap['level'], unit)}: {gap['why']}")
    for level in levels:
        control = level["control"]
        if control and (control["low"] > one["threshold"] or control["high"] < 1 / one["threshold"]):
            where = _at(level["level"], unit)
            found.append(f"the box was not steady {where}: the baseline against itself gives {times_span(control)}")
    return found


def load(value: float) -> str:
    """A load with two digits, as one says "about 12": ``12``, ``130``, ``1.4``, ``0.25``."""
    if not value:
        return "0"
    digits = 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bound(one: Crossover) -> list[str]:
    """The bound that a claim rests on: of the level that is quoted, or of the best one where none is."""
    asked = [level for level in one["levels"] if not level.get("settled")]
    quoted = [level for level in asked if level["level"] == one.get("quoted")]
    if not asked or (one["word"] == PAYS and not quoted):
        return []
    best = max(quoted or asked, key=lambda level: float(level["corrected"]["low"]))
    return [
        f"the lower bound {_at(best['level'], one['unit'])} is {times(best['corrected']['low'], 3)}, "
        f"{'above' if quoted else 'not above'} {times(one['threshold'])} "
        f"({count(one['planned'], 'level')}: the chance of claiming any gain falsely is 5 % at most)"
    ]


def _of_the_ab(one: Crossover, unit: str) -> str:
    """Whose word it is at the level where the A/B and the ladder said different things."""
    for level in one["levels"]:
        if settled := level.get("settled"):
            where = f"; {_at(level['level'], unit)} the A/B decides"
            if settled["word"] == PAYS:
                return f"{where}, though the ladder alone shows {times_span(level['speedup'])}"
            return f"{where}: {settled['word']}, {times_span(settled['speedup'])}"
    return ""


def _at(level: float, unit: str) -> str:
    return "for one user" if level == 1 and unit == CLOSED_UNIT else f"at {shown_level(level)} {unit}"


def _beyond(one: Crossover) -> str:
    """What happens above the crossover: a cost where there is one, and nothing where the ladder ends."""
    first, last = one["beyond"], one.get("at_the_top")
    if one["reaches_top"]:
        return ""
    if not first:
        return "; no clear difference beyond"
    places = f"at {shown_level(first['level'])}"
    if last and last["level"] != first["level"]:
        places += f"; {_cost(last['change'])} at {shown_level(last['level'])}"
    told = f"; costs {_cost(first['change'])} beyond ({places})"
    # A gain above the bar whose interval is not: neither a gain to claim nor a level to pass over.
    unsure = []
    for level in one["levels"]:
        if level["level"] > first["level"] and level["speedup"]["gain"] > one["threshold"]:
            unsure.append(shown_level(level["level"]))
    return f"{told}; unclear again at {listing(unsure)}" if unsure else told


def _cost_of_gaps(one: Crossover) -> str:
    """What the levels in between cost, in brackets: ``(costs 20 % at 4; 30 % at 8)``."""
    costly = []
    for level in one["levels"]:
        if level["level"] in one["gaps"] and level["word"] == "costs":
            costly.append(f"{_cost(level['speedup']['gain'] - 1.0)} at {shown_level(level['level'])}")
    return f" (costs {'; '.join(costly)})" if costly else ""


def _cost(change: float) -> str:
    return f"{-100 * change:.0f} %"


def _without_gain(one: Crossover, unit: str) -> str:
    """What the levels of a ladder that does not pay show."""
    levels = one["levels"]
    costly = [level for level in levels if level["word"] == "costs"]
    alone = [level for level in levels if level["word"] == PAYS]
    if costly:
        worst = min(costly, key=lambda level: level["speedup"]["gain"])
        told = f"costs {_cost(worst['speedup']['gain'] - 1.0)} {_at(worst['level'], unit)}"
        return told if len(levels) == 1 else f"{told} at worst"
    if alone:
        best = max(alone, key=lambda level: level["speedup"]["low"])
        across = count(one["planned"], "level")
        return f"{times_span(best['speedup'])} {_at(best['level'], unit)} is not significant across {across}"
    return "no clear difference"
