"""The evidence of a verdict, gathered: everything of two results that decides the word or explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..bench.result_types import ArmResult
from ..bench.samples import requests_of, rounds_of
from ..bench.usage_check import contradictions
from ..core.format import listing
from ..profiles.resolved_types import ResolvedProfile
from .acceptance_findings import acceptance_findings
from .answered import unanswered
from .arm_diff import file_differences, result_differences, stale
from .decision import Decision, Measured, decide
from .drafting import counter_of, drafting_of, drafting_problems
from .gates import FAILED, OUTPUTS, judge_gates
from .measured import control_of, in_groups, measure
from .noise import Disturbance, disturbances_of
from .output_equality import compare_outputs
from .speedup import BASELINE, SPECULATIVE
from .text_clock import usage_against_text
from .user_clock import user_clock
from .validity import answers_without_tpot, broken_answers, missing_pairs, polluted_groups, wrong_schema
from .verdict_types import AcceptanceFinding, Control, Drafting, Figures, JudgedGate, JudgedGroup, UserClock
from .words import THRESHOLD


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on. ``declared`` are the groups that it is about, ``kinds`` as the profile declares them.

    ``invalid`` are the reasons for which the results cannot be compared, ``wrong`` those for which the output is wrong,
    ``disturbed`` what else can explain the speed. ``by_speed`` is what the speeds alone decide.
    """

    results: Mapping[str, ArmResult]
    resolved: ResolvedProfile
    kinds: list[str]
    declared: list[str]
    rounds: int
    concurrency: int | None
    measured: Measured
    by_speed: Decision
    figures: Figures
    groups: dict[str, JudgedGroup]
    clock: UserClock
    drafting: dict[str, Drafting]
    nothing_drafted: bool
    acceptance: list[AcceptanceFinding]
    gates: list[JudgedGate]
    invalid: list[str]
    wrong: list[str]
    disturbed: list[Disturbance]

    @property
    def control(self) -> Control | None:
        """The baseline against itself."""
        return self.figures["control"]


def gather(
    baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile, *, from_files: bool = False
) -> Evidence:
    """The evidence of two results of one resolved profile. Nothing is raised for a bad result: it is a reason.

    ``from_files``: the results are other people's files, without rendered files. Their requests are paired already, and
    what they say of drafts is judged there (`judged_files.py`).
    """
    results = {BASELINE: baseline, SPECULATIVE: speculative}
    experiment = resolved.get("experiment") or {}
    kinds = [str(kind) for kind in experiment.get("kinds") or []]
    requests = [*requests_of(baseline), *requests_of(speculative)]
    present = list(dict.fromkeys(str(request.get("group")) for request in requests))
    declared = declared_groups(results, kinds, present)
    order = list(dict.fromkeys([*declared, *present]))
    together = experiment.get("schedule") == "interleaved"
    measured = measure(results, declared, together=together)
    by_speed = decide(measured)
    gates = judge_gates(baseline, speculative, resolved)
    drafting = {BASELINE: drafting_of(baseline), SPECULATIVE: drafting_of(speculative)}
    nothing_drafted = _nothing_drafted(speculative, declared) and bool(drafting[SPECULATIVE]["drafted"])
    wrong = []
    # What a single check finds is plainer than that texts differ.
    for gate in sorted(gates, key=lambda gate: gate["name"] == OUTPUTS):
        if gate["word"] == FAILED:
            wrong.append(f"wrong output: {gate['said']}")
    invalid = _not_comparable(results, resolved, declared, order, drafting, from_files=from_files)
    if not wrong:
        # What keeps the speed from being known; of answers that are wrong no speed has to be known.
        invalid += [*contradictions(results, declared), *usage_against_text(results, declared)]
        invalid += _no_speed(results, declared, measured, nothing_drafted=nothing_drafted)
    return Evidence(
        results=results,
        resolved=resolved,
        kinds=kinds,
        declared=declared,
        rounds=len(rounds_of(requests_of(speculative))),
        concurrency=speculative.get("max_concurrency", experiment.get("concurrency")),
        measured=measured,
        by_speed=by_speed,
        figures=_figures(results, declared, measured),
        groups={group: _group(results, group, declared, measured, together) for group in order},
        clock=user_clock(results, declared),
        drafting=drafting,
        nothing_drafted=nothing_drafted,
        acceptance=acceptance_findings(speculative, resolved),
        gates=gates,
        invalid=invalid,
        wrong=wrong,
        disturbed=disturbances_of(measured.speedup, results, declared),
    )


def declared_groups(results: Mapping[str, ArmResult], kinds: Sequence[str], present: Sequence[str]) -> list[str]:
    """The groups that the verdict is about: those of the declared kinds, at every temperature.

    Where none is declared: all of them, but not those that are there for a gate alone.
    """
    of_kinds: set[str] = set()
    gated: set[str] = set()
    for result in results.values():
        for request in requests_of(result):
            if request.get("kind") in kinds:
                of_kinds.add(str(request.get("group")))
            if request.get("gate"):
                gated.add(str(request.get("group")))
    if kinds:
        return sorted(of_kinds)
    return [group for group in present if group not in gated] or list(present)


def _figures(results: Mapping[str, ArmResult], groups: Sequence[str], measured: Measured) -> Figures:
    """Speed-up, A/A control and equality of outputs over some groups; a prompt counts once in all of them."""
    baseline, speculative = in_groups(results[BASELINE], groups), in_groups(results[SPECULATIVE], groups)
    rounds = rounds_of(baseline)[:2]
    twice = None
    if len(rounds) == 2:
        # The second round under the number of the first: answers are paired within a round.
        first, again = [], []
        for request in baseline:
            if request.get("round") == rounds[0]:
                first.append(request)
            elif request.get("round") == rounds[1]:
                again.append(request | {"round": rounds[0]})
        twice = compare_outputs(first, again)
    return {
        "speedup": measured.gain,
        "control": control_of(results[BASELINE], groups),
        "outputs": {"speculative": compare_outputs(baseline, speculative), "control": twice},
    }


def _not_comparable(
    results: Mapping[str, ArmResult],
    resolved: ResolvedProfile,
    declared: Sequence[str],
    order: Sequence[str],
    drafting: Mapping[str, Drafting],
    *,
    from_files: bool,
) -> list[str]:
    """Why the results are no fair comparison, whatever their speeds; of files not what only our own runs have."""
    missing: list[str] = []
    undrafted: list[str] = []
    files: list[str] = []
    if not from_files:
        missing = missing_pairs(results, resolved.get("experiment") or {}, declared, order)
        undrafted, files = drafting_problems(drafting), file_differences(resolved)
    return [
        *wrong_schema(results),
        *broken_answers(results),
        *missing,
        *unanswered(results, declared),
        *polluted_groups(results, declared),
        *undrafted,
        *stale(results[BASELINE], resolved, BASELINE),
        *stale(results[SPECULATIVE], resolved, SPECULATIVE),
        *files,
        *result_differences(results[BASELINE], results[SPECULATIVE]),
    ]


def _group(
    results: Mapping[str, ArmResult], group: str, declared: Sequence[str], measured: Measured, together: bool
) -> JudgedGroup:
    """The figures of one group; ``measured`` is what was measured of the declared ones."""
    if [group] != declared:
        measured = measure(results, [group], together=together)
    return {**_figures(results, [group], measured), "declared": group in declared}


def _nothing_drafted(speculative: ArmResult, declared: Sequence[str]) -> bool:
    """Whether the counters of the declared groups are there, and say that not one token was drafted."""
    groups = speculative.get("groups") or {}
    counted = []
    for group in declared:
        drafted = counter_of(groups.get(group), "draft_tokens")
        if drafted is not None:
            counted.append(drafted)
    return bool(counted) and sum(counted) == 0


def _no_speed(
    results: Mapping[str, ArmResult], declared: Sequence[str], measured: Measured, *, nothing_drafted: bool
) -> list[str]:
    """Why no speed-up can be told although all of the requests are there."""
    found = answers_without_tpot(results, declared)
    speedup = measured.speedup
    if declared and speedup is None:
        found.append(f"no two prompts on {listing(declared)} were answered in both arms: there is no interval")
    if speedup and nothing_drafted and speedup.low > 0 and speedup.as_dict()["low"] > THRESHOLD:
        found.append(
            f"the speculative arm was faster on {listing(declared)} without drafting a token there: "
            "something else made it faster"
        )
    return found
