"""Up to which load speculation pays: the crossover of a ladder, for each kind of work.

At every level of the load the verdict's rule is applied (`verdict.py`): each prompt is reduced to its median TPOT
over the rounds in either arm, the ratio of the two (baseline over speculative) is that prompt's speed-up, and the
median over the prompts gets a bootstrap interval. Only rounds in which both arms were measured well count.

- The **word** of a level is `pays` (lower 95 % bound above 1.03), `costs` (upper bound below 1/1.03) or `unclear`.
- A ladder looks at many levels, and one of them looks good by chance more often than one look would. So the ladder
  as a whole `pays` only where the exact interval of at least one level stays above 1.03 when its confidence is
  raised for all of the ladder's levels (Bonferroni: 1 - 0.05 / levels), those planned and not reached included.
- The **crossover** is where the median speed-up falls through 1.03: on a straight line over log2 of the level,
  between the last level above it and the next. A level that `costs` ends the search: a median above 1.03 at a
  higher load is luck until that level `pays`, and only then the search goes on from there. The crossover's interval
  is a bootstrap over prompts, the same resample at all levels, because a prompt that drafts well does so at every
  load.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .crossover_text import CANNOT_SAY, CLOSED_UNIT, reasons, sentence
from .stats import CONFIDENCE, RESAMPLES, SEED, Estimate, bootstrap_median, median, paired_ratios, values_needed
from .verdict_words import DOES_NOT_PAY, PAYS, THRESHOLD

COSTS, UNCLEAR = "costs", "unclear"
OK = "ok"
BASELINE, SPECULATIVE = "baseline", "speculative"
#: What stands in the crossovers of resamples that never pay, and of those that pay at every level.
NEVER, ALWAYS = 0.0, math.inf

Step = Mapping[str, Any]
Ratios = dict[str, float]
Array = NDArray[np.float64]
Steps = dict[tuple[str, Any], Step]


def fill(ladder: Mapping[str, Any], resamples: int = RESAMPLES) -> dict[str, dict[str, Any]]:
    """Return the crossover of every kind of a ladder, as plain data: what stands in its ``crossover``.

    Nothing is raised for a ladder that was stopped, polluted or broken: levels without a good pair of steps are in
    ``missing`` with the reason, and too few prompts give the word "cannot say". ``pays_until``, ``pays_from`` and
    ``interval`` are in the ladder's unit; an end of the interval is None where it lies outside the ladder.
    """
    steps = list(ladder.get("steps") or [])
    kinds = dict.fromkeys([*(ladder.get("kinds") or []), *(step["kind"] for step in steps)])
    return {str(kind): _of_kind(ladder, [s for s in steps if s["kind"] == kind], resamples) for kind in kinds}


def ladder_confidence(levels: int) -> float:
    """Return the confidence that the interval of one level needs, for all ``levels`` together to have 95 %."""
    return 1.0 - (1.0 - CONFIDENCE) / max(1, levels)


def prompts_needed(levels: int) -> int:
    """Return the fewest prompts of a kind that can show anything over so many levels (8 for 5, 10 for 16)."""
    return values_needed(ladder_confidence(levels))


def exact_interval(values: Sequence[float], confidence: float) -> Estimate:
    """Return the median of ``values`` with its interval by order statistics, which assumes nothing of them.

    The k-th smallest of n values lies above the median of the population when fewer than k fell below it: the
    binomial tail P(X < k) for n and 1/2 (David and Nagaraja, Order Statistics, 3rd edition 2003, section 7.1). k is
    the largest for which both tails leave ``confidence``. A bootstrap of few values is too sure of itself that far
    out in its tails. Raises ValueError for none.
    """
    ordered = sorted(values)
    n = len(ordered)
    tail, k = 2.0**-n, 1
    while k < n / 2 and 2 * (more := tail + math.comb(n, k) * 2.0**-n) <= 1.0 - confidence:
        tail, k = more, k + 1
    return Estimate(
        median=median(ordered),
        low=ordered[k - 1],
        high=ordered[n - k],
        n=n,
        confidence=confidence,
        reach=min(confidence, 1.0 - 2 * tail),
    )


def word_of(speedup: Mapping[str, Any]) -> str:
    """Return the word of one level for its speed-up (an `Estimate` as plain data)."""
    if speedup["reach"] < speedup["confidence"]:
        return UNCLEAR
    return PAYS if speedup["low"] > THRESHOLD else COSTS if speedup["high"] < 1 / THRESHOLD else UNCLEAR


def headline(crossover: Mapping[str, Mapping[str, Any]], kinds: Sequence[str] = ()) -> str:
    """Return the sentences of some kinds (all of them without any) as one text, each after its kind."""
    chosen = [kind for kind in (kinds or crossover) if kind in crossover]
    return "; ".join(f"{kind} {crossover[kind]['sentence']}" for kind in chosen)


# --- one kind ---------------------------------------------------------------------------------------


def _of_kind(ladder: Mapping[str, Any], steps: Sequence[Step], resamples: int) -> dict[str, Any]:
    planned = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    confidence = ladder_confidence(len(planned))
    unit = str(ladder.get("unit") or CLOSED_UNIT)
    table: dict[float, Ratios] = {}
    levels: list[dict[str, Any]] = []
    missing: list[dict[str, Any]] = []
    for level in planned:
        here = [step for step in steps if step["level"] == level]
        good, rounds = _good(here)
        ratios = _ratios(good, rounds)
        if not ratios:
            missing.append({"level": level, "why": _why_missing(here, rounds)})
            continue
        table[level] = ratios
        levels.append(_level(level, list(ratios.values()), confidence, good, rounds, resamples))
    firm = [one for one in levels if one["corrected"]["reach"] >= confidence]
    claimed = [one for one in firm if one["corrected"]["low"] > THRESHOLD]
    found: dict[str, Any] = {
        "word": PAYS if claimed else DOES_NOT_PAY if firm else CANNOT_SAY,
        "unit": unit,
        "levels": levels,
        "planned": len(planned),
        "confidence": confidence,
        "threshold": THRESHOLD,
        "prompts_needed": values_needed(confidence),
        "pays_until": None,
        "pays_from": None,
        "interval": None,
        "reaches_top": False,
        "gaps": [],
        "beyond": None,
        "missing": missing,
    }
    if claimed:
        # What is quoted is a level that stands: the lowest one.
        found["quoted"] = claimed[0]["level"]
        found |= _crossing(levels, table, resamples)
    found["reasons"] = reasons(found)
    found["sentence"] = sentence(found, unit)
    return found


def _good(steps: Sequence[Step]) -> tuple[Steps, list[Any]]:
    """Return the good steps of one level by arm and round, and the rounds in which both arms have one.

    Where a round has a step twice (an arm that was started again), the last one counts.
    """
    good = {(str(step["arm"]), step["round"]): step for step in steps if step["status"] == OK}
    rounds = sorted({number for arm, number in good if arm == BASELINE and (SPECULATIVE, number) in good})
    return good, rounds


def _ratios(good: Steps, rounds: Sequence[Any]) -> Ratios:
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


def _tpot(step: Step) -> dict[str, list[float]]:
    """Return the usable times per output token of a step in ms, by prompt."""
    usable = {
        str(prompt): [float(value) for value in values if value is not None and math.isfinite(value) and value > 0]
        for prompt, values in (step.get("tpot_by_prompt") or {}).items()
    }
    return {prompt: values for prompt, values in usable.items() if values}


def _why_missing(steps: Sequence[Step], rounds: Sequence[Any]) -> str:
    if rounds:
        return "no prompt was answered in both arms"
    bad = sorted({f"{step['arm']} {step['status']}" for step in steps if step["status"] != OK})
    if bad:
        return ", ".join(bad)
    arms = sorted({str(step["arm"]) for step in steps})
    return f"only {arms[0]} was measured" if arms else "not measured"


def _level(
    level: float, ratios: Sequence[float], confidence: float, good: Steps, rounds: Sequence[Any], resamples: int
) -> dict[str, Any]:
    speedup = bootstrap_median(ratios, resamples=resamples).as_dict()
    return {
        "level": level,
        "speedup": speedup,
        "corrected": exact_interval(ratios, confidence).as_dict(),
        "word": word_of(speedup),
        "rounds": len(rounds),
        # All the tokens that the server gives, not one user's: it can still gain where TPOT loses nothing more.
        "throughput_ratio": _throughput_ratio(good, rounds),
        "control": _control(good, resamples),
    }


def _throughput_ratio(good: Steps, rounds: Sequence[Any]) -> float | None:
    """Return the output tokens a second of the speculative arm over the baseline's; None where one is unknown."""
    told = {arm: [good[arm, number].get("output_throughput") for number in rounds] for arm in (SPECULATIVE, BASELINE)}
    known = {arm: [float(value) for value in values if value] for arm, values in told.items()}
    return median(known[SPECULATIVE]) / median(known[BASELINE]) if all(known.values()) else None


def _control(good: Steps, resamples: int) -> dict[str, Any] | None:
    """Return the baseline's first good round over its second, prompt by prompt: what the box does by itself."""
    first, second, *_ = [*sorted(number for arm, number in good if arm == BASELINE), None, None]
    if second is None:
        return None
    ratios = paired_ratios(_tpot(good[BASELINE, first]), _tpot(good[BASELINE, second]))
    if not ratios:
        return None
    return bootstrap_median(list(ratios.values()), resamples=resamples).as_dict() | {"rounds": [first, second]}


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


def _searched(levels: Sequence[Mapping[str, Any]]) -> int:
    """Return among how many levels, from the lowest, the crossover is: up to the first cost that no gain follows.

    Such a level is the last of them. A gain is one whose whole interval is above the threshold: a median alone lies
    there by chance at half of the levels where the arms are equal, and would carry the claim over levels that cost.
    """
    above = next(place for place, one in enumerate(levels) if one["speedup"]["median"] > THRESHOLD)
    sure = max((place for place, one in enumerate(levels) if one["word"] == PAYS), default=above)
    ends = (place + 1 for place, one in enumerate(levels) if place > sure and one["word"] == COSTS)
    return next(ends, len(levels))


def _crossing(levels: Sequence[Mapping[str, Any]], table: Mapping[float, Ratios], resamples: int) -> dict[str, Any]:
    """Return the crossover with its interval, and what lies before and beyond it."""
    until_here = _searched(levels)
    places = [one["level"] for one in levels[:until_here]]
    medians = np.asarray([[one["speedup"]["median"] for one in levels[:until_here]]])
    above = [place for place in range(until_here) if medians[0, place] > THRESHOLD]
    until = float(crossings(places, medians)[0])
    # The resample is drawn over all of the levels: the same prompts as before, and none of them lost.
    drawn = crossings(places, _resampled(table, resamples)[:, :until_here])
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


def _change(level: Mapping[str, Any]) -> dict[str, Any]:
    return {"level": level["level"], "change": level["speedup"]["median"] - 1.0}


def _resampled(table: Mapping[float, Ratios], resamples: int) -> Array:
    """Return the median speed-up of every level (columns) in every resample of the prompts (rows)."""
    prompts = sorted({prompt for ratios in table.values() for prompt in ratios})
    draws = np.random.default_rng(SEED).integers(0, len(prompts), size=(resamples, len(prompts)))
    columns = []
    for ratios in table.values():
        values = np.asarray([ratios.get(prompt, math.nan) for prompt in prompts])
        whole = not np.isnan(values).any()
        middle: Callable[..., Array] = np.median if whole else np.nanmedian
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            medians = middle(values[draws], axis=1)
        # A resample without any prompt of this level says nothing about it.
        columns.append(np.where(np.isnan(medians), np.nanmedian(values), medians))
    return np.column_stack(columns)
