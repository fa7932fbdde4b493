"""Gathers the evidence of a verdict from two results: all that decides its word or explains it."""

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
from .arm_diff import file_differences, profile_mismatches, result_differences
from .decision import Decision, Measured, decide
from .drafting import counter_of, drafting_of, drafting_problems
from .gates import FAILED, OUTPUTS, judge_gates
from .measured import answers_in, control_of, measure
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
    """The evidence of a verdict. A group is a prompt kind at one temperature, a gate a test of the outputs."""

    results: Mapping[str, ArmResult]  # by arm
    resolved: ResolvedProfile
    kinds: list[str]  # those that the profile declares: the verdict is about them
    declared: list[str]  # the groups of these kinds
    rounds: int
    concurrency: int | None  # None: unknown
    measured: Measured  # over the declared groups
    by_speed: Decision  # the decision by speed alone, whatever `invalid`, `wrong` and `disturbed` have
    figures: Figures  # over the declared groups
    groups: dict[str, JudgedGroup]  # all groups by name, the declared ones first
    clock: UserClock
    drafting: dict[str, Drafting]  # by arm
    nothing_drafted: bool  # True: the speculative arm drafted, but not in the declared groups
    acceptance: list[AcceptanceFinding]
    gates: list[JudgedGate]
    invalid: list[str]  # reasons against comparing the results
    wrong: list[str]  # a sentence for each failed gate
    disturbed: list[Disturbance]  # causes other than speculation that can explain the speed-up

    @property
    def control(self) -> Control | None:
        """The A/A control: the baseline's odd rounds over its even ones."""
        return self.figures["control"]


def gather(
    baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile, *, from_files: bool = False
) -> Evidence:
    """The evidence of the two arms' results of one resolved profile. A bad result raises nothing: it becomes a reason.

    ``from_files``: the results are imported from other clients' files. They have no rendered files,
    their requests are paired already, and `judged_files.py` judges their drafting.
    """
    results = {BASELINE: baseline, SPECULATIVE: speculative}
    experiment = resolved.get("experiment") or {}
    kinds = list(map(str, experiment.get("kinds") or []))
    requests = [*requests_of(baseline), *requests_of(speculative)]
    present = list(dict.fromkeys(str(request.get("group")) for request in requests))
    declared = declared_groups(results, kinds, present)
    order = list(dict.fromkeys([*declared, *present]))
    together = experiment.get("schedule") == "interleaved"  # both servers run side by side
    measured = measure(results, declared, together=together)
    by_speed = decide(measured)
    gates = judge_gates(baseline, speculative, resolved)
    drafting = {BASELINE: drafting_of(baseline), SPECULATIVE: drafting_of(speculative)}
    nothing_drafted = _nothing_drafted(speculative, declared) and bool(drafting[SPECULATIVE]["drafted"])
    wrong = []
    # Differing texts come last: a failed check of single answers is easier to understand.
    for gate in sorted(gates, key=lambda gate: gate["name"] == OUTPUTS):
        if gate["word"] == FAILED:
            wrong.append(f"wrong output: {gate['said']}")
    invalid = _invalid_reasons(
        results, resolved, declared=declared, order=order, drafting=drafting, from_files=from_files
    )
    if not wrong:
        # Reasons why the speed is unknown; they do not matter if the output is wrong.
        invalid += [*contradictions(results, declared), *usage_against_text(results, declared)]
        invalid += _unknown_speed_reasons(results, declared, measured, nothing_drafted=nothing_drafted)
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
        groups={group: _group_figures(results, group, declared, measured, together=together) for group in order},
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
    """The groups of the declared kinds, at every temperature, sorted by name.

    If no kind is declared: the groups that are ``present``, without those of requests for a gate, or all if there are
    no others.
    """
    declared: set[str] = set()
    gate_groups: set[str] = set()
    for result in results.values():
        for request in requests_of(result):
            if request.get("kind") in kinds:
                declared.add(str(request.get("group")))
            if request.get("gate"):
                gate_groups.add(str(request.get("group")))
    if kinds:
        return sorted(declared)
    return [group for group in present if group not in gate_groups] or list(present)


def _figures(results: Mapping[str, ArmResult], groups: Sequence[str], measured: Measured) -> Figures:
    """Speed-up, A/A control and output equality over some groups, each prompt counted once over all of them."""
    baseline = answers_in(results[BASELINE], groups)
    speculative = answers_in(results[SPECULATIVE], groups)
    first_rounds = rounds_of(baseline)[:2]
    equal_in_baseline = None
    if len(first_rounds) == 2:
        # The second round gets the number of the first, because answers are paired within a round.
        first_answers = []
        second_answers = []
        for request in baseline:
            if request.get("round") == first_rounds[0]:
                first_answers.append(request)
            elif request.get("round") == first_rounds[1]:
                second_answers.append(request | {"round": first_rounds[0]})
        equal_in_baseline = compare_outputs(first_answers, second_answers)
    return {
        "speedup": measured.gain,
        "control": control_of(results[BASELINE], groups),
        "outputs": {"speculative": compare_outputs(baseline, speculative), "control": equal_in_baseline},
    }


def _invalid_reasons(
    results: Mapping[str, ArmResult],
    resolved: ResolvedProfile,
    *,
    declared: Sequence[str],
    order: Sequence[str],
    drafting: Mapping[str, Drafting],
    from_files: bool,
) -> list[str]:
    """Why the results are not comparable, whatever their speed; ``order`` has all groups, the declared ones first."""
    missing: list[str] = []
    draft_problems: list[str] = []
    different_files: list[str] = []
    if not from_files:
        missing = missing_pairs(results, resolved.get("experiment") or {}, declared, order)
        draft_problems = drafting_problems(drafting)
        different_files = file_differences(resolved)
    return [
        *wrong_schema(results),
        *broken_answers(results),
        *missing,
        *unanswered(results, declared),
        *polluted_groups(results, declared),
        *draft_problems,
        *profile_mismatches(results[BASELINE], resolved, BASELINE),
        *profile_mismatches(results[SPECULATIVE], resolved, SPECULATIVE),
        *different_files,
        *result_differences(results[BASELINE], results[SPECULATIVE]),
    ]


def _group_figures(
    results: Mapping[str, ArmResult], group: str, declared: Sequence[str], measured: Measured, *, together: bool
) -> JudgedGroup:
    """The figures of one group; ``measured`` belongs to all declared groups and is reused if that is the only one."""
    if [group] != declared:
        measured = measure(results, [group], together=together)
    return {**_figures(results, [group], measured), "declared": group in declared}


def _nothing_drafted(speculative: ArmResult, declared: Sequence[str]) -> bool:
    """True if the counters of the declared groups sum to 0 draft tokens; False without counters."""
    groups = speculative.get("groups") or {}
    draft_counts = []
    for group in declared:
        drafted = counter_of(groups.get(group), "draft_tokens")
        if drafted is not None:
            draft_counts.append(drafted)
    return bool(draft_counts) and sum(draft_counts) == 0


def _unknown_speed_reasons(
    results: Mapping[str, ArmResult], declared: Sequence[str], measured: Measured, *, nothing_drafted: bool
) -> list[str]:
    """Why the speed-up is unknown or not due to speculation, although no request is missing."""
    reasons = answers_without_tpot(results, declared)
    speedup = measured.speedup
    if declared and speedup is None:
        reasons.append(f"no two prompts on {listing(declared)} were answered in both arms: there is no interval")
    # Without a clear gain an arm that drafts nothing is a fair result: a lookup may find nothing to draft.
    if speedup and nothing_drafted and speedup.low > 0 and speedup.as_dict()["low"] > THRESHOLD:
        reasons.append(
            f"the speculative arm was faster on {listing(declared)} without drafting a token there: "
            "something else made it faster"
        )
    return reasons
