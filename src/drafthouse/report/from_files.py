"""The report on other people's files: what `drafthouse judge` shows, from the paths that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import cast

from ..analysis.file_pairs import Paired, pair_runs
from ..analysis.gates import NOT_MEASURED
from ..analysis.judged_files import Judged, Sides, crossover_of_whole, judge_pairs, judge_whole, ladder_of
from ..analysis.speedup import BASELINE, SPECULATIVE
from ..bench.external.columns import ALL
from ..bench.external.read import ArmFiles, Run, read_arm
from ..bench.samples import requests_of
from ..bench.sweep.ladder_types import Ladder
from ..core.errors import did_you_mean, one_problem
from ..core.format import count, listing, number, shown_level, times
from .data.build import build_report, temperatures_of
from .report_types import JudgedFiles, KeptProfile, Report

#: An author's figures, and places of runs, that are shown at most.
MOST_FIGURES, MOST_PLACES = 8, 4
#: Times, of which less is better, by what stands in the figure's name.
_TIMES = ("_ms", "latency", "tpot", "itl")


def judge_files(baseline: str, speculative: str, kinds: Sequence[str] = ()) -> Report:
    """The report on two arms, each given as `read_arm` takes it. Raises DrafthouseError for files without a result."""
    return report_on({BASELINE: read_arm(baseline), SPECULATIVE: read_arm(speculative)}, kinds, (baseline, speculative))


def report_on(files: Mapping[str, ArmFiles], kinds: Sequence[str], names: tuple[str, str]) -> Report:
    """The report on the runs of both arms: the verdict at the lowest load that both have, and all loads beside it."""
    runs = {arm: own.runs for arm, own in files.items()}
    loads, warnings = _loads(runs)
    for own in files.values():
        warnings += own.notes
    warnings += _other_models(runs)
    lowest = _lowest(loads)
    paired: Paired | None = None
    ladder: Ladder | None = None
    if _answered(loads[lowest]):
        pairs = _pairs(loads, kinds)
        paired = pairs[lowest]
        judged = judge_pairs(paired, kinds)
        warnings += paired.notes
        known = {load: pair for load, pair in pairs.items() if load is not None and not pair.invalid}
        ladder = ladder_of(known, loads[lowest][0][0].unit)
    else:
        judged = judge_whole(*loads[lowest])
    report = build_report(
        judged.results[BASELINE], judged.results[SPECULATIVE], cast("KeptProfile", {}), ladder=ladder,
        judged=judged.judgement,
    )  # fmt: skip
    if ladder:
        quiet = ", if the box was quiet" if judged.quiet else ""
        report["verdict"]["reasons"].append(
            f"over the loads{quiet}: {(ladder['crossover'] or {})[ALL].get('sentence')}"
        )
    elif paired is None:
        report["verdict"]["reasons"] += crossover_of_whole(loads)
    report["title"] = report["profile"] = f"{Path(names[0]).name} and {Path(names[1]).name}"
    report["host"] = ""
    report["warnings"] = [*warnings, *report["warnings"]]
    report["gates"] = [gate for gate in report["gates"] if gate["word"] != NOT_MEASURED]
    report["not_measured"] = not_known(judged, paired, lowest)
    report["files"] = _files(runs, loads[lowest], judged, paired)
    return report


def _files(runs: Mapping[str, Sequence[Run]], sides: Sides, judged: Judged, paired: Paired | None) -> JudgedFiles:
    """What the report says of the files themselves."""
    forms = {arm: list(dict.fromkeys(run.form for run in own)) for arm, own in runs.items()}
    return {
        "forms": forms,
        "runs": {BASELINE: _places(sides[0]), SPECULATIVE: _places(sides[1])},
        "paired_by": paired.how if paired else "run",
        "clocks": paired.clocks if paired else [],
        "if_quiet": judged.quiet,
        "author": _author(*sides),
    }


def _pairs(loads: Mapping[float | None, Sides], kinds: Sequence[str]) -> dict[float | None, Paired]:
    """The pairs of every load with single answers in both arms. DrafthouseError for a kind that no prompt has."""
    pairs = {load: pair_runs(*sides) for load, sides in loads.items() if _answered(sides)}
    there: set[str] = set()
    for paired in pairs.values():
        for result in paired.results.values():
            for request in requests_of(result):
                there.add(str(request["kind"]))
    for kind in kinds:
        if kind not in there:
            do = did_you_mean(kind, there)
            raise one_problem("invalid-option", f"no prompt of the kind '{kind}'", "a kind of the files", do, "--kinds")
    return pairs


def _places(runs: Sequence[Run]) -> list[str]:
    """Where the runs stand; of many the first and the last."""
    places = [run.where for run in runs]
    if len(places) <= MOST_PLACES:
        return places
    return [places[0], f"… {len(places)} runs …", places[-1]]


def _answered(sides: Sides) -> bool:
    return all(any(run.answers for run in side) for side in sides)


def _loads(runs: Mapping[str, Sequence[Run]]) -> tuple[dict[float | None, Sides], list[str]]:
    """The runs of both arms by load, with a note for each load of one arm alone."""
    by_load: dict[float | None, Sides] = {}
    for place, arm in enumerate((BASELINE, SPECULATIVE)):
        for run in runs[arm]:
            by_load.setdefault(run.load, ([], []))[place].append(run)
    both = {load: sides for load, sides in by_load.items() if all(sides)}
    if not both:
        # One load each, or one arm does not say its own: `result_differences` names what differs.
        baseline = _lowest(load for load, sides in by_load.items() if sides[0])
        speculative = _lowest(load for load, sides in by_load.items() if sides[1])
        return {baseline: (by_load[baseline][0], by_load[speculative][1])}, []
    alone: dict[str, list[str]] = {}
    for load, sides in by_load.items():
        if load not in both:
            arm = BASELINE if sides[0] else SPECULATIVE
            alone.setdefault(arm, []).append("an unknown load" if load is None else shown_level(load))
    return both, [f"only {arm} was measured at {listing(levels)}" for arm, levels in alone.items()]


def _lowest(loads: Iterable[float | None]) -> float | None:
    """The lowest of some loads; one that is not known comes before all others."""
    return min(loads, key=lambda load: -1.0 if load is None else load)


def _other_models(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    baseline, speculative = _models(runs[BASELINE]), _models(runs[SPECULATIVE])
    if not baseline or not speculative or baseline == speculative:
        return []
    return [f"the files name other models or builds: {listing(baseline)} and {listing(speculative)}"]


def _models(runs: Sequence[Run]) -> list[str]:
    return sorted({model for run in runs for model in run.models})


def _author(baseline: Sequence[Run], speculative: Sequence[Run]) -> list[str]:
    """The numbers that the files' own author gives, of both arms, with their ratio: above 1 is better."""
    before, found = _mean_figures(baseline), []
    for name, after in _mean_figures(speculative).items():
        if name not in before:
            found.append(f"{name}: {number(after)}")
            continue
        sentence = f"{name}: {number(before[name])} and {number(after)}"
        if before[name] > 0 and after > 0 and not name.startswith(("spec_decode", "accept")):
            ratio = after / before[name]
            if any(part in name for part in _TIMES):
                ratio = before[name] / after
            sentence += f" ({times(ratio)})"
        found.append(sentence)
    return found[:MOST_FIGURES]


def _mean_figures(runs: Sequence[Run]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, value in run.figures.items():
            found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}


def not_known(judged: Judged, paired: Paired | None, load: float | None) -> list[str]:
    """What files cannot show, a sentence each."""
    spec = judged.results[SPECULATIVE]
    verdict = judged.judgement
    found = ["Starts: whether each run began with a fresh start of its server.",
             "Other clients, other work and throttling on the box meanwhile."]  # fmt: skip
    if verdict["control"] is None:
        found.append("The control, the baseline against itself: this needs two runs of it.")
    if verdict["outputs"]["speculative"] is None:
        equal, texts = paired.equal_texts if paired else (0, 0)
        outputs = "the files have no texts"
        if texts:
            outputs = f"{equal} of {count(texts, 'pair')} have the same text, at a temperature that is not known"
        found.append(f"Outputs, whether they are right: {outputs}.")
    found.append("Gates: JSON by schema, tool calls, a needle in a long text.")
    if verdict["drafting"][SPECULATIVE]["drafted"] is None and not spec.get("spec_decode_acceptance_rate"):
        found.append("Whether the speculative arm drafted at all, and how much was accepted.")
    if load is None:
        found.append("The load, how many requests ran at a time.")
    if not temperatures_of(spec):
        found.append("The temperature.")
    requests = requests_of(spec)
    if not any(request.get("ttft_ms") for request in requests):
        found.append("The wait for the first token.")
    if paired and not any(request.get("text") for request in requests):
        found.append("Whether the token counts are true: there is no text to hold them against.")
    found.append("Whether the two servers differ in speculation alone: their commands, versions and settings.")
    return found
