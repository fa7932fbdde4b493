"""The verdict over result files of other clients: the words of `decision.py`, as far as files support them.

A run is one execution of a client against one arm; it counts as a round. A single run of an arm does not show how its
server starts differ, so the word is `cannot say: one run of ...`. Beside it stands the word that further runs would
give if they agreed with it exactly ("if the box was quiet"). Files that give one summary per run, without single
answers, support a ratio with the spread between repeats, and no word.
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
from .crossover import crossings, crossovers_of
from .decision import FIRST_LOOK, LARGE, LEAST_ROUNDS, Cause, decide
from .drafting import drafting_problems
from .evidence import Evidence, gather
from .explanation import verdict_text
from .file_pairs import Paired, bare_result
from .measured import control_of, measure
from .speedup import BASELINE, HIGH_TAIL, LOW_TAIL, SPECULATIVE, ratio_of
from .verdict import decide_word, explain
from .verdict_types import Figures, Judgement
from .words import CANNOT_SAY, THRESHOLD

#: The runs of the baseline and of the speculative arm at one load level.
Sides = tuple[list[Run], list[Run]]
_ARM_TEXT = {BASELINE: "of the baseline", SPECULATIVE: "of the speculative arm"}
#: The schema of a ladder (load sweep) that is built from files.
LADDER_SCHEMA = "drafthouse.ladder/1"


@dataclass(frozen=True)
class Judged:
    """The verdict over files, with what a report needs beside it."""

    judgement: Judgement
    results: dict[str, ArmResult]  # by arm, the results that were judged
    quiet: str | None = None  # the word "if the box was quiet"; None if no further run is needed


def judge_pairs(paired: Paired, kinds: Sequence[str]) -> Judged:
    """The verdict over two arms with single answers, about the prompt kinds ``kinds``; about all if empty.

    If both arms have two runs or more, or the results are invalid or wrong, it is the verdict as it stands. Else it is
    `cannot say` with the word of the assumed further runs beside it. Warnings are added to ``paired.notes``.
    """
    rounds = min(paired.runs.values())  # those that both arms have
    results = {arm: _of_rounds(result, range(1, rounds + 1)) for arm, result in paired.results.items()}
    resolved = cast("ResolvedProfile", {"experiment": {"kinds": list(kinds)}})
    evidence = gather(results[BASELINE], results[SPECULATIVE], resolved, from_files=True)
    draft_problems, warnings = drafting_findings(evidence)
    evidence = replace(evidence, invalid=[*paired.invalid, *draft_problems, *evidence.invalid])
    paired.notes += warnings
    single_run_arms = [arm for arm, run_count in paired.runs.items() if run_count < FIRST_LOOK]
    if not single_run_arms or evidence.invalid or evidence.wrong:
        judgement = explain(evidence, decide_word(evidence))
        # Files have no budget for further rounds.
        for key in ("said", "sentence"):  # the explanation, and the whole sentence
            judgement[key] = judgement[key].replace("allow more rounds (experiment.budget)", "measure further runs")
        return Judged(judgement, results)
    # The control needs no counterpart in the other arm, so it covers all runs of the baseline.
    control = control_of(paired.results[BASELINE], evidence.declared)
    evidence = _with_assumed_runs(replace(evidence, figures={**evidence.figures, "control": control}), paired)
    decision = decide_word(evidence)
    judgement = explain(evidence, decision)
    runs = f"one run {listing([_ARM_TEXT[arm] for arm in single_run_arms])}"
    clause, _, _advice = verdict_text(evidence, decision).partition("; do: ")
    remedy_suffix = ", and with more prompts" if decision.cause == Cause.TOO_FEW_PROMPTS else ""
    text = (
        f"{runs}: what starts differ by is not known; if the box was quiet: {decision.word}: {clause}; "
        f"do: measure each arm twice or more, each time from a fresh start{remedy_suffix}"
    )
    judged: Judgement = {
        **judgement,
        "word": CANNOT_SAY,
        "headline": runs,
        "said": text,
        "sentence": f"{CANNOT_SAY}: {text}",
        "reasons": [f"{runs}: two of each are needed, and {LEAST_ROUNDS} below {times(LARGE)}", *judgement["reasons"]],
        "next_round": None,
    }
    return Judged(judged, results, decision.word.value)


def drafting_findings(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Reasons for `invalid`, and warnings, from the files' drafting figures, which files may lack.

    - A baseline that drafted: a reason.
    - A speculative arm that drafted, or whose file does not show whether it did: neither.
    - A speculative arm that did not draft: a reason if it is faster, else a warning: without a gain it does not pay
      anyhow.
    """
    problems = drafting_problems(evidence.drafting)
    if evidence.drafting[BASELINE]["drafted"]:
        return problems[:1], []  # that of the baseline: without one, the other arm does not matter
    speedup = evidence.measured.speedup
    if evidence.drafting[SPECULATIVE]["drafted"] is not False:
        return [], []  # it drafted, or the files do not show it (None)
    faster = speedup is not None and speedup.low > math.log(THRESHOLD)
    return (problems, []) if faster else ([], problems)


def _with_assumed_runs(evidence: Evidence, paired: Paired) -> Evidence:
    """The evidence with copies of each arm's last run as further runs, as many as the rule needs.

    Both arms get equally many runs: at least `FIRST_LOOK`, at most `LEAST_ROUNDS`, and no fewer than either has.
    The figures are those of the fewest runs, the decision by speed that of the last attempt.
    """
    fewest_rounds = max(FIRST_LOOK, *paired.runs.values())
    for rounds in range(fewest_rounds, max(fewest_rounds, LEAST_ROUNDS) + 1):
        results = {}
        for arm, result in paired.results.items():
            last_run = [request for request in requests_of(result) if request["round"] == paired.runs[arm]]
            assumed: list[Request] = []
            for round_number in range(paired.runs[arm] + 1, rounds + 1):
                assumed += [{**request, "round": round_number} for request in last_run]
            results[arm] = cast("ArmResult", {**result, "requests": [*requests_of(result), *assumed]})
        measured = measure(results, evidence.declared, together=False)
        by_speed = decide(measured)
        if rounds == fewest_rounds:  # more copies only settle the word and must not narrow the figures
            figures = cast("Figures", {**evidence.figures, "speedup": measured.gain})
            evidence = replace(evidence, measured=measured, figures=figures)
        evidence = replace(evidence, by_speed=by_speed)
        if by_speed.cause != Cause.TOO_FEW_ROUNDS:
            break
    return evidence


def _of_rounds(result: ArmResult, rounds: range) -> ArmResult:
    """The result with the requests of these rounds only."""
    requests = [request for request in requests_of(result) if request["round"] in rounds]
    return cast("ArmResult", {**result, "requests": requests})


# --- one summary per run ----------------------------------------------------------------------------


def judge_summaries(baseline: Sequence[Run], speculative: Sequence[Run]) -> Judged:
    """The verdict over runs that have only summaries: a ratio with the spread between repeats, and `cannot say`.

    Without a kind of run that both arms have there is no ratio, and the verdict is `invalid`.
    """
    tpots_ms = {BASELINE: _repeats(baseline), SPECULATIVE: _repeats(speculative)}
    results = {}
    for arm, runs in ((BASELINE, baseline), (SPECULATIVE, speculative)):
        results[arm] = bare_result(arm, runs[0].load, _requests_of_repeats(tpots_ms[arm]))
    evidence = gather(results[BASELINE], results[SPECULATIVE], cast("ResolvedProfile", {}), from_files=True)
    problems, _warnings = drafting_findings(evidence)
    ratio = ratio_of_repeats(tpots_ms[BASELINE], tpots_ms[SPECULATIVE])
    if ratio is None:
        problems.append("the two arms have no kind of run in common")
    for kind, repeats in tpots_ms[BASELINE].items():
        # The kind "" stands for a run over prompts of all kinds.
        evidence.groups[kind or ALL]["speedup"] = ratio_of_repeats({kind: repeats}, tpots_ms[SPECULATIVE])
    figures = cast("Figures", {**evidence.figures, "speedup": ratio})
    # Each repeat stands as one answer, which the checks of single answers cannot judge.
    evidence = replace(evidence, invalid=problems, wrong=[], figures=figures)
    judgement = explain(evidence, decide_word(evidence))
    if ratio is None:
        return Judged(judgement, results)
    base_runs = max(map(len, tpots_ms[BASELINE].values()))
    spec_runs = max(map(len, tpots_ms[SPECULATIVE].values()))
    runs_text = f"{count(base_runs, 'run')} of the baseline and {spec_runs} of the speculative arm"
    spread_text = (
        f"{times_span(ratio)}, the interval of the spread between" if ratio["reach"] else f"{times(ratio['gain'])},"
    )
    text = f"no single answers in these files, so how prompts differ is not known; per token {spread_text} {runs_text}"
    judged: Judgement = {
        **judgement,
        "word": CANNOT_SAY,
        "headline": "no single answers in these files",
        "said": text,
        "sentence": f"{CANNOT_SAY}: {text}; do: give files with every request (docs/judge.md)",
        "reasons": [text],
        "warnings": [],
        "next_round": None,
    }
    return Judged(judged, results)


def _repeats(runs: Sequence[Run]) -> dict[str, list[float]]:
    """The times per token of all runs by prompt kind, in ms; the kind "" has the medians of runs without kinds."""
    by_kind_ms: dict[str, list[float]] = {}
    for run in runs:
        single_ms = list(filter(None, (answer.request.get("tpot_ms") for answer in run.answers)))
        by_kind = run.summary_tpots
        if single_ms and not by_kind:
            by_kind = {"": [median(single_ms)]}
        for kind, run_ms in by_kind.items():
            by_kind_ms.setdefault(kind, []).extend(run_ms)
    return by_kind_ms


def _requests_of_repeats(by_kind: Mapping[str, Sequence[float]]) -> list[Request]:
    """Each repeat of a kind as one request with one answer, in a round of its own."""
    requests = []
    for kind, repeats in by_kind.items():
        for round_number, tpot_ms in enumerate(repeats, 1):
            request = {"prompt_id": kind or "run", "kind": kind or ALL, "group": kind or ALL, "round": round_number}
            requests.append(cast("Request", {**request, "status": "ok", "tpot_ms": tpot_ms}))
    return requests


def ratio_of_repeats(
    baseline: Mapping[str, Sequence[float]], speculative: Mapping[str, Sequence[float]]
) -> Gain | None:
    """The geometric mean over kinds of the arms' ratio of times per token, from repeats; None without a common kind.

    The arguments have the times of the repeats by kind. The variance of a repeat's logarithm is pooled over K kinds and
    both arms; that of the mean is this variance times the sum, over kinds and arms of n repeats, of 1 / (n K^2).
    If no kind was run twice in an arm there is no interval: the bounds are the ratio itself, and ``reach`` is 0.
    """
    kinds = [kind for kind in baseline if kind in speculative]
    if not kinds:
        return None
    gains = []  # logarithms, by kind
    inverse_n = 0.0  # the sum of 1 / (n K^2)
    squares = 0.0  # squared deviations of all repeats from their mean
    freedom = 0
    for kind in kinds:
        means = []  # of the baseline, then of the speculative arm
        for times_per_token in (baseline[kind], speculative[kind]):
            logs = list(map(math.log, times_per_token))
            means.append(fmean(logs))
            squares += sum((log - means[-1]) ** 2 for log in logs)
            freedom += len(logs) - 1
            inverse_n += 1 / len(logs) / len(kinds) ** 2
        gains.append(means[0] - means[1])
    mean = fmean(gains)
    if not freedom:
        return ratio_of(mean, mean, mean, len(kinds), enough=False)
    error = math.sqrt(squares / freedom * inverse_n)
    low = mean - t_quantile(LOW_TAIL, freedom) * error
    high = mean + t_quantile(HIGH_TAIL, freedom) * error
    return ratio_of(mean, low, high, len(kinds), enough=True)


# --- several load levels ----------------------------------------------------------------------------


def ladder_of(pairs: Mapping[float, Paired], unit: str) -> Ladder | None:
    """The load levels that both arms have, as a ladder with its crossover; None for fewer than two.

    ``unit`` is that of the levels. Each run is a round, and its answers at a level are one step of an arm.
    """
    if len(pairs) < 2:
        return None
    steps = []
    most_rounds = 0
    for level, paired in sorted(pairs.items()):
        rounds = min(paired.runs.values())
        most_rounds = max(most_rounds, rounds)
        for arm, result in paired.results.items():
            for round_number in range(1, rounds + 1):
                steps.append(_step(level, arm, round_number, requests_of(result)))
    ladder = cast(
        "Ladder",
        {
            "schema": LADDER_SCHEMA, "load": "closed", "unit": unit, "levels": sorted(pairs), "steps": steps,
            "kinds": [ALL], "rounds": most_rounds, "limits": {},
        },
    )  # fmt: skip
    ladder["crossover"] = crossovers_of(ladder)
    return ladder


def _step(level: float, arm: str, round_number: int, requests: Sequence[Request]) -> LadderStep:
    """One step of a ladder: the times per token of a run in ms, by prompt; ``requests`` may be of all rounds."""
    by_prompt: dict[str, list[float]] = {}
    for request in requests:
        if request["round"] == round_number and request["tpot_ms"]:
            by_prompt.setdefault(f"{request['kind']} {request['prompt_id']}", []).append(request["tpot_ms"])
    tpots = list(chain.from_iterable(by_prompt.values()))
    per_user = 1000 / median(tpots) if tpots else None
    step = {"level": level, "arm": arm, "round": round_number, "kind": ALL, "status": "ok", "tpot_by_prompt": by_prompt}
    return cast("LadderStep", {**step, "completed": len(tpots), "per_user_tok_s": per_user, "num_prompts": len(tpots)})


def crossover_of_summaries(loads: Mapping[float | None, Sides]) -> list[str]:
    """One sentence with the ratios of runs with only summaries by load level, and where they fall through 1.03.

    ``loads`` has the runs of both arms by load, None if a file does not say its load. Empty for fewer than two levels.
    """
    gains = {}
    for load, (baseline, speculative) in loads.items():
        ratio = ratio_of_repeats(_repeats(baseline), _repeats(speculative))
        if load is not None and ratio:
            gains[load] = ratio["gain"]
    levels = sorted(gains)
    if len(levels) < 2:
        return []
    ratios_text = ", ".join(f"{times(gains[level])} at {shown_level(level)}" for level in levels)
    gains_by_level = np.asarray([[gains[level] for level in levels]])
    (crossover,) = crossings(levels, gains_by_level).tolist()
    crossover_text = f"falls through {times(THRESHOLD)} at about {shown_level(round(crossover, 1))}"
    if crossover == 0:
        crossover_text = f"above {times(THRESHOLD)} nowhere"
    elif math.isinf(crossover):
        crossover_text = f"above {times(THRESHOLD)} up to the highest load"
    first_baseline_runs, _ = next(iter(loads.values()))
    unit = first_baseline_runs[0].unit
    return [f"{ratios_text} {unit}: {crossover_text}"]
