"""Build the report of `drafthouse judge` from result files of other benchmark tools, such as `vllm bench serve`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import cast

from ..analysis.file_pairs import Paired, pair_runs
from ..analysis.judged_files import Judged, Sides, crossover_of_summaries, judge_pairs, judge_summaries, ladder_of
from ..analysis.speedup import BASELINE, SPECULATIVE
from ..bench.external.columns import ALL
from ..bench.external.read import ArmFiles, Run, read_arm
from ..bench.samples import requests_of
from ..bench.sweep.ladder_types import Ladder
from ..core.errors import did_you_mean, one_problem
from ..core.format import count, listing, number, shown_level, times
from .data.build import build_report, temperatures_of
from .data.checks import measured_gates
from .report_types import JudgedFiles, KeptProfile, Report

#: The most figures of the files' author in a report.
MOST_FIGURES = 8
#: The most runs of an arm whose place (file and position) a report names.
MOST_PLACES = 4
#: Parts of the names of figures for which less is better.
_TIMES = ("_ms", "latency", "tpot", "itl")


def judge_files(baseline: str, speculative: str, kinds: Sequence[str] = ()) -> Report:
    """The report on two arms, each given as a word for `read_arm`. Raises DrafthouseError for files without a result.

    ``kinds`` are the prompt kinds that the verdict covers; empty: all.
    """
    return report_on({BASELINE: read_arm(baseline), SPECULATIVE: read_arm(speculative)}, kinds, (baseline, speculative))


def report_on(files_by_arm: Mapping[str, ArmFiles], kinds: Sequence[str], names: tuple[str, str]) -> Report:
    """The report on the runs of both arms, with the verdict at their lowest common load and a row for each load.

    ``files_by_arm`` is by baseline and speculative; ``names`` are the user's words for the two, from which the title is
    made.
    """
    runs = {arm: arm_files.runs for arm, arm_files in files_by_arm.items()}
    loads, warnings = _loads(runs)
    for arm_files in files_by_arm.values():
        warnings += arm_files.notes
    warnings += _model_notes(runs)
    lowest = _lowest(loads)
    paired: Paired | None = None  # None: the files have summaries of runs, and no single answers
    ladder: Ladder | None = None
    if _have_answers(loads[lowest]):
        pairs = _pairs(loads, kinds)
        paired = pairs[lowest]
        judged = judge_pairs(paired, kinds)
        warnings += paired.notes
        valid_pairs = {load: pair for load, pair in pairs.items() if load is not None and not pair.invalid}
        ladder = ladder_of(valid_pairs, loads[lowest][0][0].unit)
    else:
        judged = judge_summaries(*loads[lowest])
    report = build_report(
        judged.results[BASELINE],
        judged.results[SPECULATIVE],
        resolved=cast("KeptProfile", {}),  # other people's files have no profile
        ladder=ladder,
        judged=judged.judgement,
    )
    if ladder:
        quiet = ", if the box was quiet" if judged.quiet else ""
        report["verdict"]["reasons"].append(
            f"over the loads{quiet}: {(ladder['crossover'] or {})[ALL].get('sentence')}"
        )
    elif paired is None:
        report["verdict"]["reasons"] += crossover_of_summaries(loads)
    report["title"] = report["profile"] = f"{Path(names[0]).name} and {Path(names[1]).name}"
    report["host"] = ""
    report["warnings"] = [*warnings, *report["warnings"]]
    # What files cannot show has its own list, which replaces the report's about an experiment.
    report["gates"] = measured_gates(report["gates"])
    report["not_measured"] = not_known(judged, paired, lowest)
    report["files"] = _files(runs, loads[lowest], judged, paired)
    return report


def _files(runs: Mapping[str, Sequence[Run]], sides: Sides, judged: Judged, paired: Paired | None) -> JudgedFiles:
    """The report's facts on the files themselves."""
    forms = {arm: list(dict.fromkeys(run.form for run in arm_runs)) for arm, arm_runs in runs.items()}
    return {
        "forms": forms,
        "runs": {BASELINE: _places(sides[0]), SPECULATIVE: _places(sides[1])},
        "paired_by": paired.how if paired else "run",
        "clocks": paired.clocks if paired else [],
        "if_quiet": judged.quiet,
        "author": _author_figures(*sides),
    }


def _pairs(loads: Mapping[float | None, Sides], kinds: Sequence[str]) -> dict[float | None, Paired]:
    """The paired answers by load. Raises DrafthouseError if a kind in ``kinds`` has no prompt."""
    pairs = {load: pair_runs(*sides) for load, sides in loads.items() if _have_answers(sides)}
    kinds_found: set[str] = set()
    for paired in pairs.values():
        for result in paired.results.values():
            for request in requests_of(result):
                kinds_found.add(str(request["kind"]))
    for kind in kinds:
        if kind not in kinds_found:
            do = did_you_mean(kind, kinds_found)
            raise one_problem("invalid-option", f"no prompt of the kind '{kind}'", "a kind of the files", do, "--kinds")
    return pairs


def _places(runs: Sequence[Run]) -> list[str]:
    """File and position of each run; of more than `MOST_PLACES` runs only the first and the last."""
    places = [run.where for run in runs]
    if len(places) <= MOST_PLACES:
        return places
    return [places[0], f"… {len(places)} runs …", places[-1]]


def _have_answers(sides: Sides) -> bool:
    """True if both arms have single answers, not only summaries of runs."""
    return all(any(run.answers for run in side) for side in sides)


def _loads(runs: Mapping[str, Sequence[Run]]) -> tuple[dict[float | None, Sides], list[str]]:
    """The common loads (None: unknown), each with (baseline runs, speculative runs), and notes on other loads."""
    by_load: dict[float | None, Sides] = {}
    for index, arm in enumerate((BASELINE, SPECULATIVE)):
        for run in runs[arm]:
            by_load.setdefault(run.load, ([], []))[index].append(run)
    common = {load: sides for load, sides in by_load.items() if all(sides)}
    if not common:
        # No common load: compare the lowest of each arm. The verdict's checks name the difference.
        baseline = _lowest(load for load, sides in by_load.items() if sides[0])
        speculative = _lowest(load for load, sides in by_load.items() if sides[1])
        return {baseline: (by_load[baseline][0], by_load[speculative][1])}, []
    uncommon: dict[str, list[str]] = {}
    for load, sides in by_load.items():
        if load not in common:
            arm = BASELINE if sides[0] else SPECULATIVE
            uncommon.setdefault(arm, []).append("an unknown load" if load is None else shown_level(load))
    return common, [f"only {arm} was measured at {listing(levels)}" for arm, levels in uncommon.items()]


def _lowest(loads: Iterable[float | None]) -> float | None:
    """The lowest load; an unknown one (None) is lower than all others."""
    return min(loads, key=lambda load: -1.0 if load is None else load)


def _model_notes(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """A note if the files of the two arms name different models or builds; else an empty list."""
    baseline, speculative = _models(runs[BASELINE]), _models(runs[SPECULATIVE])
    if not baseline or not speculative or baseline == speculative:
        return []
    return [f"the files name other models or builds: {listing(baseline)} and {listing(speculative)}"]


def _models(runs: Sequence[Run]) -> list[str]:
    """The names of models or builds in an arm's files, sorted."""
    return sorted({model for run in runs for model in run.models})


def _author_figures(baseline: Sequence[Run], speculative: Sequence[Run]) -> list[str]:
    """The speculative arm's figures as the files give them, each beside the baseline's, with their ratio in brackets.

    A ratio above 1 is better; figures of drafts have none. At most `MOST_FIGURES`.
    """
    baseline_figures = _mean_figures(baseline)
    sentences = []
    for name, value in _mean_figures(speculative).items():
        if name not in baseline_figures:
            sentences.append(f"{name}: {number(value)}")
            continue
        sentence = f"{name}: {number(baseline_figures[name])} and {number(value)}"
        if baseline_figures[name] > 0 and value > 0 and not name.startswith(("spec_decode", "accept")):
            ratio = value / baseline_figures[name]
            if any(part in name for part in _TIMES):
                ratio = baseline_figures[name] / value
            sentence += f" ({times(ratio)})"
        sentences.append(sentence)
    return sentences[:MOST_FIGURES]


def _mean_figures(runs: Sequence[Run]) -> dict[str, float]:
    """The mean of each of the author's figures over an arm's runs."""
    values_by_name: dict[str, list[float]] = {}
    for run in runs:
        for name, value in run.figures.items():
            values_by_name.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in values_by_name.items()}


def not_known(judged: Judged, paired: Paired | None, load: float | None) -> list[str]:
    """Sentences on what these files cannot show.

    ``paired`` is None if the files have only summaries; ``load`` is that of the verdict, None if it is unknown.
    """
    spec = judged.results[SPECULATIVE]
    verdict = judged.judgement
    sentences = ["Starts: whether each run began with a fresh start of its server.",
             "Other clients, other work and throttling on the box meanwhile."]  # fmt: skip
    if verdict["control"] is None:
        sentences.append("The control, the baseline against itself: this needs two runs of it.")
    if verdict["outputs"]["speculative"] is None:
        equal, texts = paired.equal_texts if paired else (0, 0)
        outputs = "the files have no texts"
        if texts:
            outputs = f"{equal} of {count(texts, 'pair')} have the same text, at a temperature that is not known"
        sentences.append(f"Outputs, whether they are right: {outputs}.")
    sentences.append("Gates: JSON by schema, tool calls, a needle in a long text.")
    if verdict["drafting"][SPECULATIVE]["drafted"] is None and not spec.get("spec_decode_acceptance_rate"):
        sentences.append("Whether the speculative arm drafted at all, and how much was accepted.")
    if load is None:
        sentences.append("The load, how many requests ran at a time.")
    if not temperatures_of(spec):
        sentences.append("The temperature.")
    requests = requests_of(spec)
    if not any(request.get("ttft_ms") for request in requests):
        sentences.append("The wait for the first token.")
    if paired and not any(request.get("text") for request in requests):
        sentences.append("Whether the token counts are true: there is no text to hold them against.")
    sentences.append("Whether the two servers differ in speculation alone: their commands, versions and settings.")
    return sentences
