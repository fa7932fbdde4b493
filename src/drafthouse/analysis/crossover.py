"""Up to which load speculation pays: the crossover of a ladder, for each kind of work.

At every level of the load the verdict's rule is applied (`verdict.py`): each prompt is reduced to its median TPOT
over the rounds in either arm, the ratio of the two (baseline over speculative) is that prompt's speed-up, and the
median over the prompts gets an interval in which the starts of the servers have their part (`level_claims.py`). Only
rounds in which both arms were measured well count.

- The **word** of a level is `pays` (lower 95 % bound above 1.03), `costs` (upper bound below 1/1.03) or `unclear`.
- A ladder looks at many levels, and one of them looks good by chance more often than one look would. So the ladder
  as a whole `pays` only where the gain of at least one level is claimed by `level_claims.claimed`, which holds the
  error rate over all of them.
- Where the A/B was measured at a level of the ladder, on the same kind of work, **its word is that level's**
  (`agreed`): two experiments may differ by chance, and a report must not say both.
- The **crossover** is where the median speed-up falls through 1.03: on a straight line over log2 of the level,
  between the last level above it and the next. A level that `costs` ends the search: a median above 1.03 at a
  higher load is luck until that level `pays`, and only then the search goes on from there. The crossover's interval
  is a bootstrap over prompts, the same resample at all levels, because a prompt that drafts well does so at every
  load; each resample has a draw of what the starts do, which all levels share too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..bench.stats import CONFIDENCE, RESAMPLES, SEED, Estimated, median, median_interval, paired_ratios
from ..bench.sweep.ladder_types import (
    Control,
    Crossing,
    Crossover,
    Ladder,
    LadderStep,
    LevelChange,
    LevelVerdict,
    MissingLevel,
    SettledLevel,
)
from ..prompts.load_levels import CLOSED
from .crossover_text import CLOSED_UNIT, reasons, sentence
from .level_claims import claimed, prompts_needed, prompts_needed_above, starts_of, widened
from .verdict_text import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS, THRESHOLD
from .verdict_types import Judgement

# What others read from here.
__all__ = ["COSTS", "UNCLEAR", "agreed", "crossings", "fill", "prompts_needed", "word_of"]

COSTS, UNCLEAR = "costs", "unclear"
OK = "ok"
BASELINE, SPECULATIVE = "baseline", "speculative"
#: What stands in the crossovers of resamples that never pay, and of those that pay at every level.
NEVER, ALWAYS = 0.0, math.inf
_NO_CROSSING: Crossing = {
    "pays_until": None, "pays_from": None, "interval": None, "reaches_top": False, "gaps": [], "beyond": None,
}  # fmt: skip

Ratios = dict[str, float]
Array = NDArray[np.float64]
Steps = dict[tuple[str, int], LadderStep]


def fill(
    ladder: Ladder, resamples: int = RESAMPLES, settled: Mapping[str, SettledLevel] | None = None
) -> dict[str, Crossover]:
    """Return the crossover of every kind of a ladder, as plain data: what stands in its ``crossover``.

    Nothing is raised for a ladder that was stopped, polluted or broken: levels without a good pair of steps are in
    ``missing`` with the reason, and too few prompts give the word "cannot say". ``pays_until``, ``pays_from`` and
    ``interval`` are in the ladder's unit; an end of the interval is None where it lies outside the ladder.
    ``settled`` is what the A/B said of a kind at one level (see `agreed`).
    """
    steps = list(ladder.get("steps") or [])
    kinds = dict.fromkeys([*(ladder.get("kinds") or []), *(step["kind"] for step in steps)])
    return {
        str(kind): _of_kind(ladder, [s for s in steps if s["kind"] == kind], resamples, (settled or {}).get(str(kind)))
        for kind in kinds
    }


def agreed(ladder: Ladder | None, verdict: Judgement) -> Ladder | None:
    """Return the ladder with the A/B's word at the level and for the kind that both were measured at.

    That is where the loop is closed, ``verdict`` (of `verdict.judge`) is about this one kind, and its concurrency is
    a level. The ladder stays as it is where the two say the same, and where the A/B says nothing (``invalid``, or
    wrong output). A verdict over several kinds together is about none of them alone.
    """
    kinds, level = verdict["scope"]["kinds"], verdict["scope"]["concurrency"]
    known = (ladder.get("crossover") or {}) if ladder else {}
    one = known.get(kinds[0]) if len(kinds) == 1 else None
    levels = [own["level"] for own in one.get("levels") or []] if one else []
    speedup = verdict["speedup"] if verdict["word"] != INVALID and not verdict.get("wrong_output") else None
    if not ladder or not one or level is None or level not in levels or not speedup:
        return ladder
    if ladder.get("load", CLOSED) != CLOSED or (verdict["word"] == PAYS) == _covers(one, level):
        return ladder
    settled: SettledLevel = {"level": level, "word": verdict["word"], "speedup": speedup}
    found = fill({**ladder, "kinds": kinds}, settled={kinds[0]: settled})
    return {**ladder, "crossover": {**known, kinds[0]: found[kinds[0]]}}


def _covers(one: Crossover, level: float) -> bool:
    """Return whether the sentence of a kind says that it pays at a level."""
    if one["word"] != PAYS or level in one["gaps"] or level < (one["pays_from"] or one.get("quoted") or 0):
        return False
    return one["reaches_top"] or (one["pays_until"] is not None and level <= one["pays_until"])


def word_of(speedup: Estimated) -> str:
    """Return the word of one level for its speed-up (an `Estimate` as plain data)."""
    if speedup["reach"] < speedup["confidence"]:
        return UNCLEAR
    return PAYS if speedup["low"] > THRESHOLD else COSTS if speedup["high"] < 1 / THRESHOLD else UNCLEAR


# --- one kind ---------------------------------------------------------------------------------------


def _of_kind(ladder: Ladder, steps: Sequence[LadderStep], resamples: int, settled: SettledLevel | None) -> Crossover:
    planned = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    unit = str(ladder.get("unit") or CLOSED_UNIT)
    both: dict[float, tuple[Steps, list[int]]] = {}
    table: dict[float, Ratios] = {}
    missing: list[MissingLevel] = []
    for level in planned:
        here = [step for step in steps if step["level"] == level]
        good, rounds = _good(here)
        if ratios := _ratios(good, rounds):
            both[level], table[level] = (good, rounds), ratios
        else:
            missing.append({"level": level, "why": _why_missing(here, rounds)})
    starts = starts_of([_shifts(*pair) for pair in both.values()])
    spread = {level: (starts.sd_over(len(rounds)), starts.freedom) for level, (_, rounds) in both.items()}
    told = {settled["level"]: settled["word"] == PAYS} if settled else None
    values = {level: list(ratios.values()) for level, ratios in table.items()}
    asked, paying = claimed(planned, values, spread, THRESHOLD, told)
    levels: list[LevelVerdict] = []
    for level in table:
        speedup = widened(median_interval(values[level]), *spread[level]).as_dict()
        one = _level(level, *both[level], speedup, asked[level].as_dict())
        if settled and level == settled["level"]:
            one["word"] = PAYS if told and told[level] else UNCLEAR if one["word"] == PAYS else one["word"]
            one["settled"] = settled
        levels.append(one)
    crossing = _crossing(levels, _resampled(table, spread, resamples)) if paying else _NO_CROSSING
    found: Crossover = {
        "word": PAYS if paying else _without_claim(levels),
        "unit": unit,
        "levels": levels,
        "planned": len(planned),
        "confidence": CONFIDENCE,
        "threshold": THRESHOLD,
        "prompts_needed": prompts_needed(len(planned)),
        "prompts_needed_above": prompts_needed_above(len(planned)),
        "starts": {"sd": starts.sd, "rounds": starts.rounds},
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
        found["quoted"] = paying[0]
        found["at_the_top"] = crossing.get("at_the_top")
    found["reasons"] = reasons(found)
    found["sentence"] = sentence(found, unit)
    return found


def _without_claim(levels: Sequence[LevelVerdict]) -> str:
    """Return the word of a ladder of which no level is claimed."""

    def lacks(one: LevelVerdict) -> bool:
        return one["corrected"]["reach"] < one["corrected"]["confidence"]

    # A gain that begins at a higher load needs more prompts: without them nobody knows.
    unknown = all(map(lacks, levels)) or any(lacks(one) and one["word"] == PAYS for one in levels)
    return CANNOT_SAY if unknown else DOES_NOT_PAY


def _good(steps: Sequence[LadderStep]) -> tuple[Steps, list[int]]:
    """Return the good steps of one level by arm and round, and the rounds in which both arms have one.

    Where a round has a step twice (an arm that was started again), the last one counts.
    """
    good = {(str(step["arm"]), step["round"]): step for step in steps if step["status"] == OK}
    rounds = sorted({number for arm, number in good if arm == BASELINE and (SPECULATIVE, number) in good})
    return good, rounds


def _ratios(good: Steps, rounds: Sequence[int]) -> Ratios:
    """Return the speed-up of every prompt that both arms answered in the same round."""
    times: dict[str, dict[str, list[float]]] = {BASELINE: {}, SPECULATIVE: {}}
    for number in rounds:
        both = {arm: _tpot(good[arm, number]) for arm in times}
        for prompt in both[BASELINE].keys() & both[SPECULATIVE].keys():
            for arm, values in both.items():
                # A step may send a prompt more than once; a round counts once.
                times[arm].setdefault(prompt, []).append(median(values[prompt]))
    ratios = paired_ratios(times[BASELINE], times[SPECULATIVE])
    return {prompt: ratios[prompt] for prompt in sorted(ratios)}


def _tpot(step: LadderStep) -> dict[str, list[float]]:
    """Return the usable times per output token of a step in ms, by prompt."""
    usable = {
        str(prompt): [float(value) for value in values if value is not None and math.isfinite(value) and value > 0]
        for prompt, values in (step.get("tpot_by_prompt") or {}).items()
    }
    return {prompt: values for prompt, values in usable.items() if values}


def _why_missing(steps: Sequence[LadderStep], rounds: Sequence[int]) -> str:
    if rounds:
        return "no prompt was answered in both arms"
    bad = sorted({f"{step['arm']} {step['status']}" for step in steps if step["status"] != OK})
    if bad:
        return ", ".join(bad)
    arms = sorted({str(step["arm"]) for step in steps})
    return f"only {arms[0]} was measured" if arms else "not measured"


def _shifts(good: Steps, rounds: Sequence[int]) -> list[float]:
    """Return the logarithm of each round's own speed-up at one level: the median over its prompts."""
    by_round = [list(_ratios(good, [number]).values()) for number in rounds]
    return [math.log(median(ratios)) for ratios in by_round if ratios]


def _level(level: float, good: Steps, rounds: Sequence[int], speedup: Estimated, corrected: Estimated) -> LevelVerdict:
    return {
        "level": level,
        "rounds": len(rounds),
        # All the tokens that the server gives, not one user's: it can still gain where TPOT loses nothing more.
        "throughput_ratio": _throughput_ratio(good, rounds),
        "control": _control(good),
        "speedup": speedup,
        "corrected": corrected,
        "word": word_of(speedup),
    }


def _throughput_ratio(good: Steps, rounds: Sequence[int]) -> float | None:
    """Return the output tokens a second of the speculative arm over the baseline's; None where one is unknown."""
    told = {arm: [good[arm, number].get("output_throughput") for number in rounds] for arm in (SPECULATIVE, BASELINE)}
    known = {arm: [float(value) for value in values if value] for arm, values in told.items()}
    return median(known[SPECULATIVE]) / median(known[BASELINE]) if all(known.values()) else None


def _control(good: Steps) -> Control | None:
    """Return the baseline's first good round over its second, prompt by prompt: what the box does by itself."""
    rounds = sorted(number for arm, number in good if arm == BASELINE)
    if len(rounds) < 2:
        return None
    first, second = rounds[:2]
    ratios = paired_ratios(_tpot(good[BASELINE, first]), _tpot(good[BASELINE, second]))
    if not ratios:
        return None
    return {**median_interval(list(ratios.values())).as_dict(), "rounds": [first, second]}


# --- where it crosses -------------------------------------------------------------------------------


def crossings(levels: Sequence[float], medians: Array) -> Array:
    """Return where each row of ``medians`` (one column a level, rising) falls through the threshold.

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
    """Return among how many levels, from the lowest, the crossover is: up to the first cost that no gain follows.

    Such a level is the last of them. A gain is one whose whole interval is above the threshold: a median alone lies
    there by chance at half of the levels where the arms are equal, and would carry the claim over levels that cost.
    """
    above = int(np.argmax(medians > THRESHOLD))
    sure = max((place for place, one in enumerate(levels) if one["word"] == PAYS), default=above)
    ends = (place + 1 for place, one in enumerate(levels) if place > sure and one["word"] == COSTS)
    return next(ends, len(levels))


def _crossing(levels: Sequence[LevelVerdict], resampled: Array) -> Crossing:
    """Return the crossover with its interval, and what lies before and beyond it.

    ``resampled`` are medians that might have been: a row for each resample, a column a level.
    """
    medians = np.asarray([[one["speedup"]["median"] for one in levels]])
    for place, one in enumerate(levels):
        if settled := one.get("settled"):
            # Where the A/B says that it pays, it does by as much at least; where not, no gain is there to begin from.
            limit = np.maximum if settled["word"] == PAYS else np.minimum
            bound = settled["speedup"]["median"] if settled["word"] == PAYS else 1.0
            medians[:, place], resampled[:, place] = limit(medians[:, place], bound), limit(resampled[:, place], bound)
    until_here = _searched(levels, medians[0])
    places = [one["level"] for one in levels[:until_here]]
    medians = medians[:, :until_here]
    above = [place for place in range(until_here) if medians[0, place] > THRESHOLD]
    until = float(crossings(places, medians)[0])
    # The resample is drawn over all of the levels: the same prompts as before, and none of them lost.
    drawn = crossings(places, resampled[:, :until_here])
    tail = (1.0 - CONFIDENCE) / 2.0
    ends = np.quantile(drawn, tail, method="lower"), np.quantile(drawn, 1.0 - tail, method="higher")
    beyond = [one for one in levels[above[-1] + 1 :] if one["word"] == COSTS]
    return {
        "pays_until": until if math.isfinite(until) else None,
        "reaches_top": not math.isfinite(until),
        "pays_from": _pays_from(places, medians[0], above[0]),
        "interval": [float(end) if NEVER < end < ALWAYS else None for end in ends],
        # Levels in between that do not pay: the sentence must not step over them.
        "gaps": [places[place] for place in range(above[0], above[-1]) if place not in above],
        "beyond": _change(beyond[0]) if beyond else None,
        "at_the_top": _change(beyond[-1]) if beyond else None,
    }


def _pays_from(places: Sequence[float], medians: Array, first: int) -> float | None:
    """Return where the speed-up rises through the threshold; None where the lowest level is above it already.

    A mixture of experts may do that: alone, each drafted token wakes experts that a batch would have read anyway.
    """
    if first == 0:
        return None
    low, high = float(medians[first - 1]), float(medians[first])
    share = (THRESHOLD - low) / (high - low)
    return float(2.0 ** (math.log2(places[first - 1]) * (1 - share) + math.log2(places[first]) * share))


def _change(level: LevelVerdict) -> LevelChange:
    return {"level": level["level"], "change": level["speedup"]["median"] - 1.0}


def _resampled(table: Mapping[float, Ratios], spread: Mapping[float, tuple[float, int]], resamples: int) -> Array:
    """Return the median speed-up of every level (columns) in every resample of prompts and starts (rows)."""
    prompts = sorted({prompt for ratios in table.values() for prompt in ratios})
    random = np.random.default_rng(SEED)
    draws = random.integers(0, len(prompts), size=(resamples, len(prompts)))
    started = random.standard_t(next(iter(spread.values()))[1], size=resamples)
    columns = []
    for level, ratios in table.items():
        values = np.asarray([ratios.get(prompt, math.nan) for prompt in prompts])
        whole = not np.isnan(values).any()
        middle: Callable[..., Array] = np.median if whole else np.nanmedian
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            medians = middle(values[draws], axis=1)
        # A resample without any prompt of this level says nothing about it.
        medians = np.where(np.isnan(medians), np.nanmedian(values), medians)
        columns.append(medians * np.exp(spread[level][0] * started))
    return np.column_stack(columns)
