"""The verdict in words: its reasons, its sentence, and what a reader must know beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.machine_types import GroupMachine, StepMachine
from ..bench.result_types import ArmResult
from ..bench.samples import disturbances, requests_of
from ..bench.stats import CONFIDENCE, Estimated, median
from ..core.format import at_a_time, count, listing, percent, times, times_span
from ..profiles.known_issues import effect_of
from ..profiles.resolved_types import ResolvedProfile
from .verdict_types import Figures, JudgedGroup

PAYS, DOES_NOT_PAY, CANNOT_SAY, INVALID = "pays", "does not pay", "cannot say", "invalid"
# Below 3 % a restart, a warmer room or another process explains as much: such a gain is not worth a draft.
THRESHOLD = 1.03
PERCENT = f"{100 * CONFIDENCE:.0f} %"

# What a reader must know before the word itself; the resolved profile says why.
MARKS = ("synthetic", "unpinned")


def _bound(speedup: Estimated) -> str:
    """Return the lower bound with enough digits to stand on one side of the threshold."""
    low = float(speedup["low"])
    digits = next((d for d in (2, 3, 4, 5) if round(low, d) != THRESHOLD), 6)
    return times(low, digits)


def reasons_of(
    speedup: Estimated | None,
    control: Estimated | None,
    nothing_drafted: bool,
    declared: Sequence[str],
) -> list[str]:
    """Return why speculation pays or does not, as the numbers say it."""
    if speedup is None:
        return ["no prompt was measured in both arms"]
    side = "above" if speedup["low"] > THRESHOLD else "not above"
    reasons = [
        f"the lower {PERCENT} bound of the median speed-up over {count(speedup['n'], 'prompt')} is "
        f"{_bound(speedup)}, {side} {times(THRESHOLD)}"
    ]
    if nothing_drafted:
        reasons.append(f"the drafter proposed nothing on {listing(declared)}")
    if control:
        reasons.append(f"the baseline against itself, round over round, gives {times_span(control)}")
    return reasons


def said_of(
    word: str,
    speedup: Estimated | None,
    kinds: Sequence[str],
    concurrency: object,
    reasons: Sequence[str],
    *,
    wrong: bool = False,
) -> str:
    """Return what follows the word: the first reason where nothing counts beside it, otherwise the speed-up."""
    if word == INVALID or wrong or speedup is None:
        more = f" (and {count(len(reasons) - 1, 'more reason')})" if len(reasons) > 1 else ""
        return f"{reasons[0]}{more}"
    where = f"on {listing(kinds) if kinds else 'all kinds of prompt'}, {at_a_time(concurrency)}"
    if speedup["low"] > 1.0:
        told = f"{times_span(speedup)} faster per token {where}"
    elif speedup["high"] < 1.0:
        told = f"slower, {times_span(speedup)} of the baseline's speed per token {where}"
    else:
        told = f"no clear difference, {times_span(speedup)} per token {where}"
    tail = f"; the bound {_bound(speedup)} is not above {times(THRESHOLD)}" if word == DOES_NOT_PAY else ""
    return f"{told}{tail}"


def groups_of(result: ArmResult) -> list[GroupMachine]:
    """Return what the machine did around each group of an arm."""
    machine = result.get("machine")
    return (machine.get("groups") or []) if machine else []


def busy_processes(machine: StepMachine | None) -> list[str]:
    """Return the names of the processes, not ours, that were busy while an arm was measured."""
    groups = (machine.get("groups") or []) if machine else []
    between = [one for group in groups if (one := group.get("between"))]
    names = [one.get("name") for own in between for one in own.get("busy_processes") or []]
    return list(dict.fromkeys(str(name) for name in names))


def _company(results: Mapping[str, ArmResult]) -> list[str]:
    """Return where something else used the machine while an arm was measured."""
    found: list[str] = []
    for arm, result in results.items():
        machine = result.get("machine")
        between = [one for group in groups_of(result) if (one := group.get("between"))]
        others = [o for one in between if isinstance(o := one.get("other_cpu_percent"), int | float)]
        if others and median(others) > OTHER_CPU_PERCENT:
            names = busy_processes(machine)
            found.append(
                f"{arm}: other work took {median(others):.0f} % of the machine's CPU while it was measured "
                "(median)" + (f": {listing(names[:5])}" if names else "")
            )
    return found


def warnings_of(
    word: str,
    figures: Figures,
    groups: Mapping[str, JudgedGroup],
    results: Mapping[str, ArmResult],
    resolved: ResolvedProfile,
    declared: Sequence[str],
) -> list[str]:
    """Return what a reader must know beside the verdict, a sentence each."""
    found: list[str] = []
    marks = {"synthetic": resolved.get("synthetic"), "unpinned": resolved.get("unpinned")}
    found += [f"{mark} profile: {why}" for mark, why in marks.items() if why]
    told = tuple(f"{mark}:" for mark in MARKS)
    found += [str(warning) for warning in resolved.get("warnings") or [] if not str(warning).startswith(told)]
    found += [
        f"known issue {issue['id']}: {issue['what']}; {effect_of(issue)}"
        for issue in resolved.get("known_issues") or []
        # What is refused says so itself, or was not asked for in a measurement.
        if issue["effect"] != "refused"
    ]
    control = figures["control"]
    if control is None:
        found.append("no A/A control: the baseline ran one round, so its own drift is unknown")
    elif control["low"] > THRESHOLD or control["high"] < 1 / THRESHOLD:
        found.append(
            f"the box was not steady: the baseline against itself gives {times_span(control)}, more than the "
            "3 % that the verdict looks for"
        )
    speedup = figures["speedup"]
    if word == PAYS and control and speedup and speedup["low"] <= max(control["high"], 1 / control["low"]):
        found.append("the speed-up's lower bound is within the baseline's difference from itself")
    found += _company(results)
    found += [
        # Of a kind that the verdict is about it is a reason, and stands there.
        f"{arm}: {group} is polluted in round {number}, so its numbers cannot be trusted: {said}"
        for arm, result in results.items()
        for group, number, said in disturbances(result)
        if group not in declared
    ]
    found += list(dict.fromkeys(str(note) for result in results.values() for note in result.get("notes") or []))
    repeated = sorted({str(r.get("kind")) for r in requests_of(results["baseline"]) if "#" in str(r.get("prompt_id"))})
    if repeated:
        found.append(
            f"{listing(repeated)} repeats one prompt: its interval covers only that prompt, and a drafter "
            "that remembers earlier answers (n-gram pools, suffix trees) looks faster there than on new text"
        )
    both, control_outputs = figures["outputs"]["speculative"], figures["outputs"]["control"]
    if both and both["share"] < (control_outputs["share"] if control_outputs else 1.0):
        found.append(
            f"outputs at temperature 0 on {listing(declared)} are equal in {percent(both['share'])} of "
            "the pairs"
            + (
                f", and in {percent(control_outputs['share'])} when the baseline is asked twice"
                if control_outputs
                else ""
            )
        )
    slower = [
        f"{group} ({times(data['speedup']['median'])})"
        for group, data in groups.items()
        if data["speedup"] and data["speedup"]["high"] < 1.0 and word == PAYS
    ]
    if slower:
        found.append(f"slower than the baseline on {listing(slower)}")
    return found
