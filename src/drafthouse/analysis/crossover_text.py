"""The crossover of a load sweep (ladder) as text: one sentence per prompt kind, and its reasons (docs/ladder.md)."""

from __future__ import annotations

import math

from ..bench.sweep.ladder_types import Crossover
from ..core.format import DASH, count, listing, percent, shown_level, times, times_span
from ..prompts.contexts import CONTEXT_UNIT
from .words import CANNOT_SAY, PAYS

#: The unit of a closed loop's levels; those of an open loop are requests per second.
CLOSED_UNIT = "concurrent requests"


def sentence(crossover: Crossover, unit: str = CLOSED_UNIT) -> str:
    """The sentence of one prompt kind, from an entry of `crossover.crossovers_of`; ``unit`` is that of the levels.

    The section "The sentence" of docs/ladder.md explains an example part by part.
    """
    levels = crossover["levels"]
    if crossover["word"] == CANNOT_SAY:
        axis = "load"
        if unit == CONTEXT_UNIT:
            axis = "context"
        return f"{CANNOT_SAY} up to which {axis} it pays: {crossover['reasons'][0]}"
    lowest = shown_level(levels[0]["level"])
    highest = shown_level(levels[-1]["level"])
    if crossover["word"] != PAYS:
        span = lowest if len(levels) == 1 else f"{lowest} to {highest}"
        return f"{crossover['word']} at {span} {unit}: {_no_gain_text(crossover, unit)}{_settled_text(crossover, unit)}"
    quoted = next(level for level in levels if level["level"] == crossover["quoted"])
    text = f"{PAYS} {times_span((quoted.get('settled') or quoted)['speedup'])} {_at_level(quoted['level'], unit)}"
    if crossover["pays_from"] is not None:
        text += f", from about {load_text(crossover['pays_from'])}"
    text += _until_text(crossover, unit, lowest, highest)
    if crossover["gaps"]:
        text += f", but not at {listing(list(map(load_text, crossover['gaps'])))}{_gap_costs_text(crossover)}"
    return f"{text}{_beyond_text(crossover)}{_settled_text(crossover, unit)}"


def _until_text(crossover: Crossover, unit: str, lowest: str, highest: str) -> str:
    """The clause for the load up to which speculation pays, with its interval; "" if the ladder has no such load.

    ``lowest`` and ``highest`` are the measured levels as text. They stand for an end of the interval that is None,
    because it lies outside the measured levels.
    """
    low, high = crossover["interval"] or (None, None)
    if crossover["reaches_top"]:
        surely_text = f" (surely until {load_text(low)})" if low is not None else ""
        return f", and up to {highest} {unit}, the most that was measured{surely_text}"
    if crossover["pays_until"] is None or not crossover["interval"]:
        return ""
    lower = f"below {lowest}" if low is None else load_text(low)
    upper = f"beyond {highest}" if high is None else load_text(high)
    joined = " to " if low is None or high is None else DASH
    return f", until about {load_text(crossover['pays_until'])} {unit} ({lower}{joined}{upper})"


def reasons(crossover: Crossover) -> list[str]:
    """The reasons for the word of a prompt kind, the most important first."""
    levels = crossover["levels"]
    missing = crossover["missing"]
    unit = crossover["unit"]
    if not levels:
        why = listing(list(dict.fromkeys(str(gap["why"]) for gap in missing))) or "nothing was measured"
        return [f"no level has a good measurement in both arms ({why})"]
    texts = _claim_bound_text(crossover)
    if crossover["word"] == CANNOT_SAY:
        most_prompts = max(level["speedup"]["n"] for level in levels)
        texts = [f"{count(most_prompts, 'prompt')} at most, and {crossover['prompts_needed']} are needed"]
    rounds = crossover["starts"]["rounds"]
    source = f"from {count(rounds, 'round')} and the usual spread" if rounds > 1 else "assumed for one round"
    spread = percent(crossover["starts"]["sd"])
    texts.append(f"every interval includes the spread of server starts: {spread} (standard deviation, {source})")
    for gap in missing:
        texts.append(f"nothing to compare {_at_level(gap['level'], unit)}: {gap['why']}")
    for level in levels:
        control = level["control"]
        if control and (control["low"] > crossover["threshold"] or control["high"] < 1 / crossover["threshold"]):
            at_level = _at_level(level["level"], unit)
            texts.append(f"the box was not steady {at_level}: the baseline against itself gives {times_span(control)}")
    return texts


def load_text(value: float) -> str:
    """A load with two significant digits, as in "about 12": ``12``, ``130``, ``1.4``, ``0.25``."""
    if not value:
        return "0"
    digits = 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):.{max(0, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _claim_bound_text(crossover: Crossover) -> list[str]:
    """The bound that decides the claim: at the quoted level, or at the best level if none is quoted.

    A level that the A/B test settled has no such bound. Empty if all levels are settled, or if the quoted one is.
    """
    ladder_levels = [level for level in crossover["levels"] if not level.get("settled")]
    quoted_levels = [level for level in ladder_levels if level["level"] == crossover.get("quoted")]
    if not ladder_levels or (crossover["word"] == PAYS and not quoted_levels):
        return []
    shown = max(quoted_levels or ladder_levels, key=lambda level: float(level["corrected"]["low"]))
    return [
        f"the lower bound {_at_level(shown['level'], crossover['unit'])} is {times(shown['corrected']['low'], 3)}, "
        f"{'above' if quoted_levels else 'not above'} {times(crossover['threshold'])} "
        f"({count(crossover['planned'], 'level')}: the chance of claiming any gain falsely is 5 % at most)"
    ]


def _settled_text(crossover: Crossover, unit: str) -> str:
    """The clause for a level at which the A/B test decides, because it and the ladder disagree; "" without one."""
    for level in crossover["levels"]:
        if settled := level.get("settled"):
            prefix = f"; {_at_level(level['level'], unit)} the A/B decides"
            if settled["word"] == PAYS:
                return f"{prefix}, though the ladder alone shows {times_span(level['speedup'])}"
            return f"{prefix}: {settled['word']}, {times_span(settled['speedup'])}"
    return ""


def _at_level(level: float, unit: str) -> str:
    """A level with its unit, as part of a sentence: "at 8 concurrent requests"."""
    return "for one user" if level == 1 and unit == CLOSED_UNIT else f"at {shown_level(level)} {unit}"


def _beyond_text(crossover: Crossover) -> str:
    """The clause for levels above the crossover: their cost, or no clear difference; "" if the highest level pays."""
    first = crossover["beyond"]
    last = crossover.get("at_the_top")
    if crossover["reaches_top"]:
        return ""
    if not first:
        return "; no clear difference beyond"
    levels_text = f"at {shown_level(first['level'])}"
    if last and last["level"] != first["level"]:
        levels_text += f"; {_cost_percent(last['change'])} at {shown_level(last['level'])}"
    text = f"; costs {_cost_percent(first['change'])} beyond ({levels_text})"
    # The gain is above the threshold and its interval is not: no claim, but the sentence must mention the level.
    unclear_levels = []
    for level in crossover["levels"]:
        if level["level"] > first["level"] and level["speedup"]["gain"] > crossover["threshold"]:
            unclear_levels.append(shown_level(level["level"]))
    return f"{text}; unclear again at {listing(unclear_levels)}" if unclear_levels else text


def _gap_costs_text(crossover: Crossover) -> str:
    """The costs of levels between paying ones, in brackets: ``(costs 20 % at 4; 30 % at 8)``; "" if none costs."""
    costs = []
    for level in crossover["levels"]:
        if level["level"] in crossover["gaps"] and level["word"] == "costs":
            costs.append(f"{_cost_percent(level['speedup']['gain'] - 1.0)} at {shown_level(level['level'])}")
    return f" (costs {'; '.join(costs)})" if costs else ""


def _cost_percent(change: float) -> str:
    """A change of speed (a fraction, below 0 for a loss) as a cost in per cent."""
    return f"{-100 * change:.0f} %"


def _no_gain_text(crossover: Crossover, unit: str) -> str:
    """What the levels show if the ladder does not pay: the worst cost, the best gain, or no clear difference."""
    levels = crossover["levels"]
    costly_levels = [level for level in levels if level["word"] == "costs"]
    paying = [level for level in levels if level["word"] == PAYS]
    if costly_levels:
        worst = min(costly_levels, key=lambda level: level["speedup"]["gain"])
        text = f"costs {_cost_percent(worst['speedup']['gain'] - 1.0)} {_at_level(worst['level'], unit)}"
        return text if len(levels) == 1 else f"{text} at worst"
    if paying:
        best = max(paying, key=lambda level: level["speedup"]["low"])
        levels_text = count(crossover["planned"], "level")
        return f"{times_span(best['speedup'])} {_at_level(best['level'], unit)} is not significant across {levels_text}"
    return "no clear difference"
