"""The verdict over other people's files: the words of `decision.py`, as far as files can carry them. Pure.

One run of an arm does not show what its starts differ by, so the word is `cannot say: one run of ...`; beside it stands
what the same figures would say had further runs agreed to the last digit ("if the box was quiet"). Of runs that are
told in one line each, without single answers, there is a ratio with the spread between repeats, and no word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean, median
from typing import cast

import numpy as np

from ..bench.external.columns import ALL
from ..bench.external.read import Run
from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of
from ..bench.stats import Gain, t_quantile
from ..bench.sweep.ladder_types import Ladder, LadderStep
from ..core.format import count, listing, shown_level, times, times_span
from ..profiles.resolved_types import ResolvedProfile
from .crossover import crossings, fill
from .decision import FIRST_LOOK, LARGE, LEAST_ROUNDS, Cause, decide
from .drafting import drafting_problems
from .evidence import Evidence, gather
from .explanation import what_follows
from .file_pairs import Paired, bare_result
from .measured import control_of, measure
from .speedup import BASELINE, HIGH_TAIL, LOW_TAIL, SPECULATIVE, ratio_of
from .verdict import decide_word, explain
from .verdict_types import Figures, Judgement
from .words import CANNOT_SAY, THRESHOLD

#: The runs of the baseline and of the speculative arm at one load.
Sides = tuple[list[Run], list[Run]]
_OF_ARM = {BASELINE: "of the baseline", SPECULATIVE: "of the speculative arm"}
LADDER_SCHEMA = "drafthouse.ladder/1"


@dataclass(frozen=True)
class Judged:
    """The verdict with the results that it is about; ``quiet`` is the word if the box was quiet, where it is asked."""

    judgement: Judgement
    results: dict[str, ArmResult]
    quiet: str | None = None


def judge_pairs(paired: Paired, kinds: Sequence[str]) -> Judged:
    """The verdict over two arms with single answers; ``kinds`` are those that it is about, all where none is named."""
    rounds = min(paired.runs.values())
    results = {arm: _of_rounds(result, range(1, rounds + 1)) for arm, result in paired.results.items()}
    resolved = cast("ResolvedProfile", {"experiment": {"kinds": list(kinds)}})
    evidence = gather(results[BASELINE], results[SPECULATIVE], resolved, from_files=True)
    drafts, warnings = drafting_said(evidence)
    evidence = replace(evidence, invalid=[*paired.invalid, *drafts, *evidence.invalid])
    paired.notes += warnings
    single = [arm for arm, number in paired.runs.items() if number < FIRST_LOOK]
    if not single or evidence.invalid or evidence.wrong:
        judgement = explain(evidence, decide_word(evidence))
        for name in ("said", "sentence"):
            judgement[name] = judgement[name].replace("allow more rounds (experiment.budget)", "measure further runs")
        return Judged(judgement, results)
    control = control_of(paired.results[BASELINE], evidence.declared)
    evidence = _as_if_quiet(replace(evidence, figures={**evidence.figures, "control": control}), paired)
    decision = decide_word(evidence)
    judgement = explain(evidence, decision)
    runs = f"one run {listing([_OF_ARM[arm] for arm in single])}"
    follows = what_follows(evidence, decision).partition("; do: ")[0]
    more = ", and with more prompts" if decision.cause == Cause.TOO_FEW_PROMPTS else ""
    said = (
        f"{runs}: what starts differ by is not known; if the box was quiet: {decision.word}: {follows}; "
        f"do: measure each arm twice or more, each time from a fresh start{more}"
    )
    judged: Judgement = {
        **judgement,
        "word": CANNOT_SAY,
        "headline": runs,
        "said": said,
        "sentence": f"{CANNOT_SAY}: {said}",
        "reasons": [f"{runs}: two of each are needed, and {LEAST_ROUNDS} below {times(LARGE)}", *judgement["reasons"]],
        "next_round": None,
    }
    return Judged(judged, results, decision.word.value)


def drafting_said(evidence: Evidence) -> tuple[list[str], list[str]]:
    """What files say of drafts against a comparison, and what is only to be known: files may say nothing of it.

    An arm that did not draft and is no faster does not pay all the same.
    """
    problems = drafting_problems(evidence.drafting)
    if evidence.drafting[BASELINE]["drafted"]:
        return problems[:1], []
    speedup = evidence.measured.speedup
    if evidence.drafting[SPECULATIVE]["drafted"] is not False:
        return [], []
    faster = speedup is not None and speedup.low > math.log(THRESHOLD)
    return (problems, []) if faster else ([], problems)


def _as_if_quiet(evidence: Evidence, paired: Paired) -> Evidence:
    """The evidence, had the missing runs agreed with the last one of their arm: as many as the rule asks for."""
    first = max(FIRST_LOOK, *paired.runs.values())
    for rounds in range(first, max(first, LEAST_ROUNDS) + 1):
        results = {}
        for arm, result in paired.results.items():
            last = [r for r in requests_of(result) if r["round"] == paired.runs[arm]]
            more: list[Request] = []
            for number in range(paired.runs[arm] + 1, rounds + 1):
                more += [{**request, "round": number} for request in last]
            results[arm] = cast("ArmResult", {**result, "requests": [*requests_of(result), *more]})
        measured = measure(results, evidence.declared, together=False)
        by_speed = decide(measured)
        if rounds == first:
            figures = cast("Figures", {**evidence.figures, "speedup": measured.gain})
            evidence = replace(evidence, measured=measured, figures=figures)
        evidence = replace(evidence, by_speed=by_speed)
        if by_speed.cause != Cause.MORE_ROUNDS:
            break
    return evidence


def _of_rounds(result: ArmResult, rounds: range) -> ArmResult:
    requests = [request for request in requests_of(result) if request["round"] in rounds]
    return cast("ArmResult", {**result, "requests": requests})


# --- runs in one line -------------------------------------------------------------------------------


def judge_whole(baseline: Sequence[Run], speculative: Sequence[Run]) -> Judged:
    """The ratio of runs that are told in one line each, with the spread between repeats; no word but `cannot say`."""
    values = {BASELINE: _repeats(baseline), SPECULATIVE: _repeats(speculative)}
    results = {}
    for arm, runs in ((BASELINE, baseline), (SPECULATIVE, speculative)):
        results[arm] = bare_result(arm, runs[0].load, _pseudo_requests(values[arm]))
    evidence = gather(results[BASELINE], results[SPECULATIVE], cast("ResolvedProfile", {}), from_files=True)
    problems = drafting_said(evidence)[0]
    found = ratio_of_repeats(values[BASELINE], values[SPECULATIVE])
    if found is None:
        problems.append("the two arms have no kind of run in common")
    for kind, repeats in values[BASELINE].items():
        evidence.groups[kind or ALL]["speedup"] = ratio_of_repeats({kind: repeats}, values[SPECULATIVE])
    figures = cast("Figures", {**evidence.figures, "speedup": found})
    evidence = replace(evidence, invalid=problems, wrong=[], figures=figures)
    judgement = explain(evidence, decide_word(evidence))
    if found is None:
        return Judged(judgement, results)
    ours, theirs = max(map(len, values[BASELINE].values())), max(map(len, values[SPECULATIVE].values()))
    counted = f"{count(ours, 'run')} of the baseline and {theirs} of the speculative arm"
    spread = (
        f"{times_span(found)}, the interval of the spread between" if found["reach"] else f"{times(found['gain'])},"
    )
    said = f"no single answers in these files, so how prompts differ is not known; per token {spread} {counted}"
    judged: Judgement = {
        **judgement,
        "word": CANNOT_SAY,
        "headline": "no single answers in these files",
        "said": said,
        "sentence": f"{CANNOT_SAY}: {said}; do: give files with every request (docs/judge.md)",
        "reasons": [said],
        "warnings": [],
        "next_round": None,
    }
    return Judged(judged, results)


def _repeats(runs: Sequence[Run]) -> dict[str, list[float]]:
    """The times per token of each kind in ms, over all runs."""
    found: dict[str, list[float]] = {}
    for run in runs:
        tpots = list(filter(None, (answer.request.get("tpot_ms") for answer in run.answers)))
        by_kind = run.whole
        if tpots and not by_kind:
            by_kind = {"": [median(tpots)]}
        for kind, values in by_kind.items():
            found.setdefault(kind, []).extend(values)
    return found


def _pseudo_requests(by_kind: Mapping[str, Sequence[float]]) -> list[Request]:
    """Each repeat of a kind as if it were one answer, in a round of its own."""
    found = []
    for kind, repeats in by_kind.items():
        for number, tpot_ms in enumerate(repeats, 1):
            request = {"prompt_id": kind or "run", "kind": kind or ALL, "group": kind or ALL, "round": number}
            found.append(cast("Request", {**request, "status": "ok", "tpot_ms": tpot_ms}))
    return found


def ratio_of_repeats(
    baseline: Mapping[str, Sequence[float]], speculative: Mapping[str, Sequence[float]]
) -> Gain | None:
    """The geometric mean over the kinds of the baseline's time per token over the other's, from repeats; None for none.

    The spread is pooled over all kinds and both arms; without a repeat there is none, and ``reach`` is 0.
    """
    kinds = [kind for kind in baseline if kind in speculative]
    if not kinds:
        return None
    gains, parts, squares, freedom = [], 0.0, 0.0, 0
    for kind in kinds:
        means = []
        for own in (baseline[kind], speculative[kind]):
            logs = list(map(math.log, own))
            means.append(fmean(logs))
            squares += sum((value - means[-1]) ** 2 for value in logs)
            freedom += len(logs) - 1
            parts += 1 / len(logs) / len(kinds) ** 2
        gains.append(means[0] - means[1])
    middle = fmean(gains)
    if not freedom:
        return ratio_of(middle, middle, middle, len(kinds), enough=False)
    error = math.sqrt(squares / freedom * parts)
    low, high = middle - t_quantile(LOW_TAIL, freedom) * error, middle + t_quantile(HIGH_TAIL, freedom) * error
    return ratio_of(middle, low, high, len(kinds), enough=True)


# --- several loads ----------------------------------------------------------------------------------


def ladder_of(pairs: Mapping[float, Paired], unit: str) -> Ladder | None:
    """The loads that both arms were measured at as a ladder with its crossover; None for fewer than two."""
    if len(pairs) < 2:
        return None
    steps = []
    most_rounds = 0
    for level, paired in sorted(pairs.items()):
        rounds = min(paired.runs.values())
        most_rounds = max(most_rounds, rounds)
        for arm, result in paired.results.items():
            for number in range(1, rounds + 1):
                steps.append(_step(level, arm, number, requests_of(result)))
    ladder = cast(
        "Ladder",
        {
            "schema": LADDER_SCHEMA, "load": "closed", "unit": unit, "levels": sorted(pairs), "steps": steps,
            "kinds": [ALL], "rounds": most_rounds, "limits": {},
        },
    )  # fmt: skip
    ladder["crossover"] = fill(ladder)
    return ladder


def _step(level: float, arm: str, number: int, requests: Sequence[Request]) -> LadderStep:
    """One step of a ladder: the times per token of a run by prompt."""
    by_prompt: dict[str, list[float]] = {}
    for request in requests:
        if request["round"] == number and request["tpot_ms"]:
            by_prompt.setdefault(f"{request['kind']} {request['prompt_id']}", []).append(request["tpot_ms"])
    tpots = sorted(chain.from_iterable(by_prompt.values()))
    per_user = 1000 / tpots[len(tpots) // 2] if tpots else None
    told = {"level": level, "arm": arm, "round": number, "kind": ALL, "status": "ok", "tpot_by_prompt": by_prompt}
    return cast("LadderStep", {**told, "completed": len(tpots), "per_user_tok_s": per_user, "num_prompts": len(tpots)})


def crossover_of_whole(loads: Mapping[float | None, Sides]) -> list[str]:
    """The ratios of runs in one line over several loads, and the load up to which they are above 1.03."""
    gains = {}
    for load, (baseline, speculative) in loads.items():
        ratio = ratio_of_repeats(_repeats(baseline), _repeats(speculative))
        if load is not None and ratio:
            gains[load] = ratio["gain"]
    levels = sorted(gains)
    if len(levels) < 2:
        return []
    shown = ", ".join(f"{times(gains[level])} at {shown_level(level)}" for level in levels)
    until = float(crossings(levels, np.asarray([[gains[level] for level in levels]]))[0])
    where = f"falls through {times(THRESHOLD)} at about {shown_level(round(until, 1))}"
    if until == 0:
        where = f"above {times(THRESHOLD)} nowhere"
    elif math.isinf(until):
        where = f"above {times(THRESHOLD)} up to the highest load"
    unit = next(iter(loads.values()))[0][0].unit
    return [f"{shown} {unit}: {where}"]
