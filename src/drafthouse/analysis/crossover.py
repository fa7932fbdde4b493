"""Up to which load speculation pays: the crossover of a ladder, for each kind of work.

Every level of the load has the verdict's estimator (`speedup.py`): only rounds in which both arms were measured well
count, and all prompts are anchors, for every round asks them again. docs/ladder.md has the rule.

- A gain is **claimed** only by a bound of which all levels together pass the threshold by chance in 5 % of the ladders
  at most, and by `level_speedup.is_claimed`. The ladder as a whole `pays` where a level is claimed.
- Where the A/B was measured at a level of the ladder, on the same kind of work, **its word is that level's**
  (`agreed`): two experiments may differ by chance, and a report must not say both.
- The **crossover** is where the speed-up falls through 1.03: on a straight line over log2 of the level, between the
  last level above it and the next. A level that `costs` ends the search until a higher one `pays`. The crossover's
  interval is a bootstrap over prompts, the same resample at all levels, because a prompt that drafts well does so at
  every load; each resample has a draw of what the starts do, which all levels share too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ..bench.stats import RESAMPLES, SEED
from ..bench.sweep.ladder_types import (
    Crossing,
    Crossover,
    Ladder,
    LadderStep,
    LevelChange,
    LevelVerdict,
    MissingLevel,
    SettledLevel,
    StartsSeen,
)
from ..bench.sweep.plan import SCHEMA
from ..prompts.load_levels import CLOSED
from .crossover_text import CLOSED_UNIT, reasons, sentence
from .level_speedup import COSTS, UNCLEAR, MeasuredLevel, is_claimed, level_verdict, measure_level
from .speedup import BASELINE, CONFIDENCE, FEWEST_PROMPTS, LOW_TAIL, PRIOR_SD, SPECULATIVE
from .verdict_types import Judgement
from .words import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS, THRESHOLD

#: How often a ladder without a gain may claim one, over all of its levels.
FALSE_CLAIMS = 0.05
OK = "ok"
#: What stands in the crossovers of resamples that never pay, and of those that pay at every level.
NEVER, ALWAYS = 0.0, math.inf
NO_CROSSING: Crossing = {
    "pays_until": None, "pays_from": None, "interval": None, "reaches_top": False, "gaps": [], "beyond": None,
}  # fmt: skip

Array = NDArray[np.float64]
Steps = dict[tuple[str, int], LadderStep]


def fill(
    ladder: Ladder, resamples: int = RESAMPLES, settled: Mapping[str, SettledLevel] | None = None
) -> dict[str, Crossover]:
    """The crossover of every kind of a ladder, as plain data: what stands in its ``crossover``.

    Nothing is raised for a ladder that was stopped, polluted or broken: levels without a good pair of steps are in
    ``missing`` with the reason, and too few prompts give the word "cannot say". ``pays_until``, ``pays_from`` and
    ``interval`` are in the ladder's unit; an end of the interval is None where it lies outside the ladder.
    ``settled`` is what the A/B said of a kind at one level (see `agreed`).
    """
    steps: dict[str, list[LadderStep]] = {str(kind): [] for kind in ladder.get("kinds") or []}
    for step in ladder.get("steps") or []:
        steps.setdefault(str(step["kind"]), []).append(step)
    return {kind: _of_kind(ladder, own, resamples, (settled or {}).get(kind)) for kind, own in steps.items()}


def agreed(ladder: Ladder | None, verdict: Judgement) -> Ladder | None:
    """The ladder with its crossover by the rule of today, and the A/B's word at the level and kind that both measured.

    That is where the loop is closed, ``verdict`` (of `verdict.judge`) is about this one kind, and its concurrency is
    a level. Nothing is settled where the two say the same, and where the A/B says nothing (``invalid``, or wrong
    output). A verdict over several kinds together is about none of them alone.
    """
    if not ladder or ladder.get("schema") != SCHEMA:
        return ladder
    known = fill(ladder)
    ladder = {**ladder, "crossover": known}
    kinds, level = verdict["scope"]["kinds"], verdict["scope"]["concurrency"]
    speedup = verdict["speedup"]
    if len(kinds) != 1 or kinds[0] not in known or level is None or not speedup:
        return ladder
    if verdict["word"] == INVALID or verdict.get("wrong_output"):
        return ladder
    one = known[kinds[0]]
    if all(own["level"] != level for own in one.get("levels") or []):
        return ladder
    if ladder.get("load", CLOSED) != CLOSED or (verdict["word"] == PAYS) == _covers(one, level):
        return ladder
    settled: SettledLevel = {"level": level, "word": verdict["word"], "speedup": speedup}
    found = fill({**ladder, "kinds": kinds}, settled={kinds[0]: settled})
    return {**ladder, "crossover": {**known, kinds[0]: found[kinds[0]]}}


def _covers(one: Crossover, level: float) -> bool:
    """Whether the sentence of a kind says that it pays at a level."""
    if one["word"] != PAYS or level in one["gaps"] or level < (one["pays_from"] or one.get("quoted") or 0):
        return False
    return one["reaches_top"] or (one["pays_until"] is not None and level <= one["pays_until"])


# --- one kind ---------------------------------------------------------------------------------------


def _of_kind(ladder: Ladder, steps: Sequence[LadderStep], resamples: int, settled: SettledLevel | None) -> Crossover:
    planned = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    measured: dict[float, MeasuredLevel] = {}
    missing: list[MissingLevel] = []
    levels: list[LevelVerdict] = []
    paying: list[float] = []
    for level in planned:
        here = [step for step in steps if step["level"] == level]
        good, rounds = _good(here)
        found = measure_level(good, min(LOW_TAIL, FALSE_CLAIMS / len(planned)))
        if found is None:
            missing.append({"level": level, "why": _why_missing(here, rounds)})
            continue
        measured[level] = found
        judged = level_verdict(level, good, rounds, found)
        pays = is_claimed(judged, found)
        if settled and level == settled["level"]:
            pays = settled["word"] == PAYS
            judged["settled"] = settled
            if pays or judged["word"] == PAYS:
                judged["word"] = PAYS if pays else UNCLEAR
        levels.append(judged)
        if pays:
            paying.append(level)
    crossing = _crossing(levels, _resampled(measured, resamples)) if paying else NO_CROSSING
    answer: Crossover = {
        "word": PAYS if paying else _without_claim(levels),
        "unit": str(ladder.get("unit") or CLOSED_UNIT),
        "levels": levels,
        "planned": len(planned),
        "confidence": CONFIDENCE,
        "threshold": THRESHOLD,
        "prompts_needed": FEWEST_PROMPTS,
        "prompts_needed_above": FEWEST_PROMPTS,
        "starts": _spread_of_starts(list(measured.values())),
        "pays_until": crossing["pays_until"],
        "pays_from": crossing["pays_from"],
        "interval": crossing["interval"],
        "reaches_top": crossing["reaches_top"],
        "gaps": list(crossing["gaps"]),
        "beyond": crossing["beyond"],
        "missing": missing,
    }
    if paying:
        # What is quoted is a level that stands: the lowest one.
        answer["quoted"] = paying[0]
        answer["at_the_top"] = crossing.get("at_the_top")
    answer["reasons"] = reasons(answer)
    answer["sentence"] = sentence(answer, answer["unit"])
    return answer


def _without_claim(levels: Sequence[LevelVerdict]) -> str:
    """The word of a ladder of which no level is claimed: without prompts enough nobody knows."""
    lacking = [level for level in levels if level["corrected"]["reach"] < level["corrected"]["confidence"]]
    # A gain that begins at a higher load needs more prompts.
    unknown = len(lacking) == len(levels) or any(level["word"] == PAYS for level in lacking)
    return CANNOT_SAY if unknown else DOES_NOT_PAY


def _good(steps: Sequence[LadderStep]) -> tuple[Steps, list[int]]:
    """The good steps of one level by arm and round, and the rounds in which both arms have one.

    Where a round has a step twice (an arm that was started again), the last one counts.
    """
    good = {(str(step["arm"]), step["round"]): step for step in steps if step["status"] == OK}
    rounds = sorted({number for arm, number in good if arm == BASELINE and (SPECULATIVE, number) in good})
    return good, rounds


def _why_missing(steps: Sequence[LadderStep], rounds: Sequence[int]) -> str:
    if rounds:
        return "no prompt was answered in both arms"
    bad = {f"{step['arm']} {step['status']}" for step in steps if step["status"] != OK}
    arms = sorted({str(step["arm"]) for step in steps})
    return ", ".join(sorted(bad)) or (f"only {arms[0]} was measured" if arms else "not measured")


# --- where it crosses -------------------------------------------------------------------------------


def crossings(levels: Sequence[float], medians: Array) -> Array:
    """Where each row of ``medians`` (one column a level, rising) falls through the threshold.

    Between the last level above it and the next one, on a straight line over log2 of the level. 0 where no level
    is above the threshold, infinity where the highest level is.
    """
    above = medians > THRESHOLD
    at = medians.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)
    found = np.where(above.any(axis=1), ALWAYS, NEVER)
    rows = np.flatnonzero(above.any(axis=1) & (at < medians.shape[1] - 1))
    places = np.log2(np.asarray(levels, dtype=np.float64))
    here, after = at[rows], at[rows] + 1
    high, low = medians[rows, here], medians[rows, after]
    found[rows] = 2.0 ** (places[here] + (places[after] - places[here]) * (high - THRESHOLD) / (high - low))
    return found


def _searched(levels: Sequence[LevelVerdict], medians: Array) -> int:
    """Among how many levels, from the lowest, the crossover is: up to the first cost that no gain follows.

    Such a level is the last of them. A gain is one whose whole interval is above the threshold: a median alone lies
    there by chance at half of the levels where the arms are equal, and would carry the claim over levels that cost.
    """
    above = int(np.argmax(medians > THRESHOLD))
    words = [one["word"] for one in levels]
    sure = len(words) - 1 - words[::-1].index(PAYS) if PAYS in words else above
    return words.index(COSTS, sure + 1) + 1 if COSTS in words[sure + 1 :] else len(words)


def _crossing(levels: Sequence[LevelVerdict], resampled: Array) -> Crossing:
    """The crossover with its interval, and what lies before and beyond it.

    ``resampled`` are medians that might have been: a row for each resample, a column a level.
    """
    medians = np.asarray([[one["speedup"]["gain"] for one in levels]])
    for place, one in enumerate(levels):
        if settled := one.get("settled"):
            # Where the A/B says that it pays, it does by as much at least; where not, no gain is there to begin from.
            limit = np.maximum if settled["word"] == PAYS else np.minimum
            bound = settled["speedup"]["gain"] if settled["word"] == PAYS else 1.0
            medians[:, place], resampled[:, place] = limit(medians[:, place], bound), limit(resampled[:, place], bound)
    until_here = _searched(levels, medians[0])
    places = [one["level"] for one in levels[:until_here]]
    medians = medians[:, :until_here]
    above = [place for place in range(until_here) if medians[0, place] > THRESHOLD]
    until = float(crossings(places, medians)[0])
    reaches_top = not math.isfinite(until)
    # The resample is drawn over all of the levels: the same prompts as before, and none of them lost.
    drawn = crossings(places, resampled[:, :until_here])
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(drawn, tail, method="lower"), np.quantile(drawn, 1.0 - tail, method="higher")
    first: LevelChange | None = None
    last: LevelChange | None = None
    for one in levels[above[-1] + 1 :]:
        if one["word"] == COSTS:
            last = {"level": one["level"], "change": one["speedup"]["gain"] - 1.0}
            first = first or last
    gaps = [places[place] for place in range(above[0], above[-1]) if place not in above]
    return {
        "pays_until": None if reaches_top else until,
        "pays_from": _pays_from(places, medians[0], above[0]),
        "interval": [_inside(float(low)), _inside(float(high))],
        "reaches_top": reaches_top,
        # Levels in between that do not pay: the sentence must not step over them.
        "gaps": gaps,
        "beyond": first,
        "at_the_top": last,
    }


def _inside(end: float) -> float | None:
    """An end of the crossover's interval, None where it lies outside the ladder."""
    return end if NEVER < end < ALWAYS else None


def _spread_of_starts(measured: Sequence[MeasuredLevel]) -> StartsSeen:
    """What server starts differ by (standard deviation as a share) over all levels, and the rounds that show it."""
    if not measured:
        return {"sd": PRIOR_SD, "rounds": 1}
    variance = fmean(level.speedup.starts.variance for level in measured)
    return {"sd": math.sqrt(variance), "rounds": min(level.speedup.rounds for level in measured)}


def _pays_from(places: Sequence[float], medians: Array, first: int) -> float | None:
    """Where the speed-up rises through the threshold; None where the lowest level is above it already.

    A mixture of experts may do that: alone, each drafted token wakes experts that a batch would have read anyway.
    """
    if first == 0:
        return None
    low, high = float(medians[first - 1]), float(medians[first])
    share = (THRESHOLD - low) / (high - low)
    return float(2.0 ** (math.log2(places[first - 1]) * (1 - share) + math.log2(places[first]) * share))


def _resampled(measured: Mapping[float, MeasuredLevel], resamples: int) -> Array:
    """The speed-up of every level (columns) in every resample of prompts and starts (rows)."""
    prompts = sorted({str(prompt) for one in measured.values() for prompt in one.speedup.prompt_gains})
    random = np.random.default_rng(SEED)
    draws = random.integers(0, len(prompts), size=(resamples, len(prompts)))
    freedom = min(one.speedup.starts.freedom for one in measured.values())
    started = random.standard_t(freedom, size=resamples)
    columns = []
    for one in measured.values():
        gains = np.asarray([one.speedup.prompt_gains.get(prompt, math.nan) for prompt in prompts])
        drawn = gains[draws]
        known = np.isfinite(drawn)
        number = known.sum(axis=1)
        sums = np.where(known, drawn, 0.0).sum(axis=1)
        # A resample without any prompt of this level says nothing about it.
        means = np.where(number > 0, sums / np.maximum(number, 1), one.speedup.speedup)
        columns.append(np.exp(means + math.sqrt(one.speedup.from_starts) * started))
    return np.column_stack(columns)
