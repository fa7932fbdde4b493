"""The crossover of a load sweep (ladder): the load up to which speculation pays, for each prompt kind.

Each level uses the verdict's estimator (`speedup.py`) over the rounds in which both arms have a
good step; every round repeats all prompts, so all are anchors. The rule is in docs/ladder.md.

- A gain is **claimed** if `level_speedup.is_claimed` holds at an error rate of at most 5 % / number of levels
  (Bonferroni), so that at most 5 % of ladders without a gain claim one. The ladder `pays` if any level is claimed.
- If the A/B test measured the same kind at one of the levels, **its word settles that level**
  (`with_settled_levels`): the two experiments may differ by chance, and a report must not contradict itself.
- The **crossover** is the load at which the speed-up falls through 1.03, on a straight line over log2 of the level
  between the last level above it and the next. A level that `costs` ends the search unless a higher one `pays`. The
  interval is a bootstrap: a resample draws the same prompts at all levels, because a prompt drafts well or badly at
  every load, and one effect of server starts for all levels.
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
from ..prompts.contexts import CONTEXT_UNIT, at_load, kind_and_context
from ..prompts.load_levels import CLOSED
from .crossover_text import CLOSED_UNIT, reasons, sentence
from .level_speedup import COSTS, UNCLEAR, MeasuredLevel, is_claimed, level_verdict, measure_level
from .speedup import BASELINE, CONFIDENCE, FEWEST_PROMPTS, LOW_TAIL, PRIOR_SD, SPECULATIVE
from .verdict_types import Judgement
from .words import CANNOT_SAY, DOES_NOT_PAY, INVALID, PAYS, THRESHOLD

#: The error rate of claims over all levels together: the share of ladders without a gain that may claim one.
FALSE_CLAIMS = 0.05
OK = "ok"  # the status of a good step
NEVER = 0.0  # the crossover (a load) of a resample that pays at no level
ALWAYS = math.inf  # the crossover of a resample whose highest level pays
#: A kind without a claimed level has no crossover.
NO_CROSSING: Crossing = {
    "pays_until": None, "pays_from": None, "interval": None, "reaches_top": False, "gaps": [], "beyond": None,
}  # fmt: skip

Array = NDArray[np.float64]
Steps = dict[tuple[str, int], LadderStep]  # by arm and round


def crossovers_of(
    ladder: Ladder, resamples: int = RESAMPLES, settled: Mapping[str, SettledLevel] | None = None
) -> dict[str, Crossover]:
    """The crossover of each prompt kind of a ladder, as plain data (the ladder's key ``crossover``).

    A stopped, polluted or broken ladder raises nothing: levels without a good pair of steps are listed
    in ``missing`` with the reason, and too few prompts give "cannot say". ``pays_until``, ``pays_from``
    and ``interval`` are in the ladder's unit; an end of the interval is None if it lies outside the
    measured levels. ``settled`` has, by kind, the A/B test's word on one level (`with_settled_levels`).
    """
    by_kind: dict[str, list[LadderStep]] = {str(kind): [] for kind in ladder.get("kinds") or []}
    for step in ladder.get("steps") or []:
        by_kind.setdefault(str(step["kind"]), []).append(step)
    return {kind: _of_kind(ladder, steps, resamples, (settled or {}).get(kind)) for kind, steps in by_kind.items()}


def over_contexts(ladder: Ladder | None) -> Ladder | None:
    """The ladder turned round: its levels are contexts in tokens, and a kind is a prompt kind at one load.

    The crossover is then the context up to which speculation pays. None without a ladder of the current schema that has
    at least two contexts.
    """
    if ladder is None or ladder.get("schema") != SCHEMA:
        return None
    steps: list[LadderStep] = []
    contexts: set[float] = set()
    kinds: dict[str, None] = {}  # the names of the new kinds; a dict keeps their order
    for step in ladder.get("steps") or []:
        kind, tokens = kind_and_context(str(step["kind"]))
        if tokens:
            name = at_load(kind, step["level"])
            steps.append({**step, "kind": name, "level": tokens})
            contexts.add(tokens)
            kinds[name] = None
    if len(contexts) < 2:
        return None
    turned: Ladder = {**ladder, "unit": CONTEXT_UNIT, "levels": sorted(contexts), "kinds": list(kinds), "steps": steps}
    turned["notes"] = []  # the notes are about the loads
    return {**turned, "crossover": crossovers_of(turned)}


def with_settled_levels(ladder: Ladder | None, verdict: Judgement) -> Ladder | None:
    """The ladder with its crossovers by the current rule, and with the A/B test's word at a level that both measured.

    The word settles a level only if the loop is closed, the verdict is about a single kind and about speed, and the
    ladder has a level at the verdict's concurrency on which it says something else. A ladder of another schema, or
    None, is returned as it is.
    """
    if not ladder or ladder.get("schema") != SCHEMA:
        return ladder
    crossovers = crossovers_of(ladder)
    ladder = {**ladder, "crossover": crossovers}
    kinds = verdict["scope"]["kinds"]
    level = verdict["scope"]["concurrency"]
    speedup = verdict["speedup"]
    # A verdict over several kinds says nothing about a single one of them.
    if len(kinds) != 1 or kinds[0] not in crossovers or level is None or not speedup:
        return ladder
    if verdict["word"] == INVALID or verdict.get("wrong_output"):
        return ladder
    crossover = crossovers[kinds[0]]
    if all(level_entry["level"] != level for level_entry in crossover.get("levels") or []):
        return ladder
    if ladder.get("load", CLOSED) != CLOSED or (verdict["word"] == PAYS) == _pays_at(crossover, level):
        return ladder
    settled: SettledLevel = {"level": level, "word": verdict["word"], "speedup": speedup}
    settled_crossovers = crossovers_of({**ladder, "kinds": kinds}, settled={kinds[0]: settled})
    return {**ladder, "crossover": {**crossovers, kinds[0]: settled_crossovers[kinds[0]]}}


def _pays_at(entry: Crossover, level: float) -> bool:
    """True if the sentence of a kind says that it pays at this level."""
    # Without `pays_from` the sentence begins at the lowest claimed level (`quoted`).
    first_level = entry["pays_from"] or entry.get("quoted") or 0
    if entry["word"] != PAYS or level in entry["gaps"] or level < first_level:
        return False
    return entry["reaches_top"] or (entry["pays_until"] is not None and level <= entry["pays_until"])


# --- one kind ---------------------------------------------------------------------------------------


def _of_kind(ladder: Ladder, steps: Sequence[LadderStep], resamples: int, settled: SettledLevel | None) -> Crossover:
    """The crossover of one prompt kind, with the word of each level; ``steps`` and ``settled`` are of the kind."""
    levels_planned = sorted({*(ladder.get("levels") or []), *(step["level"] for step in steps)})
    measured: dict[float, MeasuredLevel] = {}
    missing: list[MissingLevel] = []
    entries: list[LevelVerdict] = []
    paying: list[float] = []  # the levels with a claimed gain
    for level in levels_planned:
        level_steps = [step for step in steps if step["level"] == level]
        good, rounds = _good_steps(level_steps)
        level_figures = measure_level(good, min(LOW_TAIL, FALSE_CLAIMS / len(levels_planned)))
        if level_figures is None:
            missing.append({"level": level, "why": _why_missing(level_steps, rounds)})
            continue
        measured[level] = level_figures
        entry = level_verdict(level, good, rounds, level_figures)
        pays = is_claimed(entry, level_figures)
        if settled and level == settled["level"]:
            pays = settled["word"] == PAYS
            entry["settled"] = settled
            # A level that costs or is unclear does not contradict an A/B test without `pays`, so it keeps its word.
            if pays or entry["word"] == PAYS:
                entry["word"] = PAYS if pays else UNCLEAR
        entries.append(entry)
        if pays:
            paying.append(level)
    crossing = _crossing(entries, _resampled_speedups(measured, resamples)) if paying else NO_CROSSING
    crossover: Crossover = {
        "word": PAYS if paying else _without_claim(entries),
        "unit": str(ladder.get("unit") or CLOSED_UNIT),
        "levels": entries,
        "planned": len(levels_planned),
        "confidence": CONFIDENCE,
        "threshold": THRESHOLD,
        "prompts_needed": FEWEST_PROMPTS,
        "prompts_needed_above": FEWEST_PROMPTS,  # equal since rule 2; an earlier rule had two numbers
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
        crossover["quoted"] = paying[0]  # the lowest claimed level, which the sentence quotes
        crossover["at_the_top"] = crossing.get("at_the_top")
    crossover["reasons"] = reasons(crossover)
    crossover["sentence"] = sentence(crossover, crossover["unit"])
    return crossover


def _without_claim(levels: Sequence[LevelVerdict]) -> str:
    """The word of a ladder without a claimed level: `cannot say` if prompts are lacking, else `does not pay`.

    Prompts are lacking if all levels have too few, or if a level that `pays` has.
    """
    lacking = [level for level in levels if level["corrected"]["reach"] < level["corrected"]["confidence"]]
    # A level that pays but has too few prompts may be a real gain.
    unknown = len(lacking) == len(levels) or any(level["word"] == PAYS for level in lacking)
    return CANNOT_SAY if unknown else DOES_NOT_PAY


def _good_steps(steps: Sequence[LadderStep]) -> tuple[Steps, list[int]]:
    """The good steps of one level by arm and round, and the rounds in which both arms have one.

    If a round has a step twice (its arm was restarted), the last one counts.
    """
    good = {(str(step["arm"]), step["round"]): step for step in steps if step["status"] == OK}
    rounds = sorted({r for arm, r in good if arm == BASELINE and (SPECULATIVE, r) in good})
    return good, rounds


def _why_missing(steps: Sequence[LadderStep], rounds: Sequence[int]) -> str:
    """Why a level has no figures; ``rounds`` are those in which both arms have a good step."""
    if rounds:
        return "no prompt was answered in both arms"
    # A status that is not OK (polluted, broken, incomplete) explains more than an arm without a step.
    bad_states = {f"{step['arm']} {step['status']}" for step in steps if step["status"] != OK}
    arms = sorted({str(step["arm"]) for step in steps})
    return ", ".join(sorted(bad_states)) or (f"only {arms[0]} was measured" if arms else "not measured")


# --- where it crosses -------------------------------------------------------------------------------


def crossings(levels: Sequence[float], gains: Array) -> Array:
    """The load at which each row of ``gains`` (speed-ups, columns by rising level) falls through the threshold.

    It is interpolated over log2 of the level, between the last level above the threshold and the
    next one. 0 if no level is above the threshold, infinity if the highest level is.
    """
    above = gains > THRESHOLD
    last_above = gains.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)
    crossed = np.where(above.any(axis=1), ALWAYS, NEVER)
    rows = np.flatnonzero(above.any(axis=1) & (last_above < gains.shape[1] - 1))
    logs = np.log2(np.asarray(levels, dtype=np.float64))
    left = last_above[rows]
    right = left + 1
    high = gains[rows, left]
    low = gains[rows, right]
    crossed[rows] = 2.0 ** (logs[left] + (logs[right] - logs[left]) * (high - THRESHOLD) / (high - low))
    return crossed


def _levels_searched(levels: Sequence[LevelVerdict], gains: Array) -> int:
    """How many levels, from the lowest, the crossover is searched in: up to the first `costs` after the last `pays`.

    Without `pays`, the first gain above the threshold takes its place. Other gains do not extend the search:
    with equal arms half of them are above 1 by chance, and would carry a claim over levels that cost.
    """
    first_above = int(np.argmax(gains > THRESHOLD))
    words = [level["word"] for level in levels]
    last_pays = len(words) - 1 - words[::-1].index(PAYS) if PAYS in words else first_above
    return words.index(COSTS, last_pays + 1) + 1 if COSTS in words[last_pays + 1 :] else len(words)


def _crossing(levels: Sequence[LevelVerdict], resampled: Array) -> Crossing:
    """The crossover with its interval, and the levels before and beyond it; at least one level has a claimed gain.

    ``resampled`` has bootstrap speed-ups: a row per resample, a column per level. Settled levels change in it.
    """
    gains = np.asarray([[entry["speedup"]["gain"] for entry in levels]])
    for index, entry in enumerate(levels):
        if settled := entry.get("settled"):
            # `pays` by the A/B test raises the level to at least its gain; any other word lowers it to at most 1.
            clip = np.maximum if settled["word"] == PAYS else np.minimum
            limit = settled["speedup"]["gain"] if settled["word"] == PAYS else 1.0
            gains[:, index] = clip(gains[:, index], limit)
            resampled[:, index] = clip(resampled[:, index], limit)
    searched = _levels_searched(levels, gains[0])
    searched_levels = [entry["level"] for entry in levels[:searched]]
    gains = gains[:, :searched]
    paying = [index for index in range(searched) if gains[0, index] > THRESHOLD]
    (pays_until,) = crossings(searched_levels, gains).tolist()
    reaches_top = not math.isfinite(pays_until)
    # Prompts were resampled over all levels, so the search of fewer levels still uses the same draws.
    crossed = crossings(searched_levels, resampled[:, :searched])
    tail = (1.0 - CONFIDENCE) / 2.0
    low = np.quantile(crossed, tail, method="lower")
    high = np.quantile(crossed, 1.0 - tail, method="higher")
    # The lowest and the highest level that costs, beyond the last that pays.
    first_cost: LevelChange | None = None
    last_cost: LevelChange | None = None
    for entry in levels[paying[-1] + 1 :]:
        if entry["word"] == COSTS:
            last_cost = {"level": entry["level"], "change": entry["speedup"]["gain"] - 1.0}
            first_cost = first_cost or last_cost
    gaps = [searched_levels[index] for index in range(paying[0], paying[-1]) if index not in paying]
    return {
        "pays_until": None if reaches_top else pays_until,
        "pays_from": _pays_from(searched_levels, gains[0], paying[0]),
        "interval": [_end_or_none(float(low)), _end_or_none(float(high))],
        "reaches_top": reaches_top,
        # Levels between paying ones that do not pay; the sentence lists them.
        "gaps": gaps,
        "beyond": first_cost,
        "at_the_top": last_cost,
    }


def _end_or_none(end: float) -> float | None:
    """An end of the crossover's interval; None if it lies outside the measured levels."""
    return end if NEVER < end < ALWAYS else None


def _spread_of_starts(measured: Sequence[MeasuredLevel]) -> StartsSeen:
    """The standard deviation of server starts (a fraction; root of the mean variance over the levels), and the rounds.

    The rounds are the fewest of any level. Without a measured level it is the prior, as for one round.
    """
    if not measured:
        return {"sd": PRIOR_SD, "rounds": 1}
    variance = fmean(level.speedup.starts.variance for level in measured)
    return {"sd": math.sqrt(variance), "rounds": min(level.speedup.rounds for level in measured)}


def _pays_from(levels: Sequence[float], gains: Array, first_paying: int) -> float | None:
    """The load at which the speed-up rises through the threshold; None if the lowest level is already above it.

    Mixtures of experts may gain only under load: alone, each draft token loads experts that a batch loads anyway.
    """
    if first_paying == 0:
        return None
    gain_below = float(gains[first_paying - 1])
    gain_above = float(gains[first_paying])
    share = (THRESHOLD - gain_below) / (gain_above - gain_below)
    return float(2.0 ** (math.log2(levels[first_paying - 1]) * (1 - share) + math.log2(levels[first_paying]) * share))


def _resampled_speedups(measured: Mapping[float, MeasuredLevel], resamples: int) -> Array:
    """The speed-ups of all levels (columns) in each bootstrap resample of prompts and starts (rows)."""
    prompts = sorted({str(prompt) for level in measured.values() for prompt in level.speedup.prompt_gains})
    random = np.random.default_rng(SEED)
    # The draws of prompts and of starts are the same at all levels, see the module's docstring.
    draws = random.integers(0, len(prompts), size=(resamples, len(prompts)))
    freedom = min(level.speedup.starts.freedom for level in measured.values())
    start_draws = random.standard_t(freedom, size=resamples)
    columns = []
    for level in measured.values():
        # Logarithms; NaN for a prompt that this level did not measure.
        gains = np.asarray([level.speedup.prompt_gains.get(prompt, math.nan) for prompt in prompts])
        drawn = gains[draws]
        present = np.isfinite(drawn)
        drawn_counts = present.sum(axis=1)
        sums = np.where(present, drawn, 0.0).sum(axis=1)
        # A resample without a prompt of this level gets the level's own speed-up.
        means = np.where(drawn_counts > 0, sums / np.maximum(drawn_counts, 1), level.speedup.log_gain)
        columns.append(np.exp(means + math.sqrt(level.speedup.from_starts) * start_draws))
    return np.column_stack(columns)
