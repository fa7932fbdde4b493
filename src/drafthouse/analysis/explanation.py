"""The verdict explained: its sentence, its reasons, and what a reader must know beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..bench.gpu_text import gpu_trouble
from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.result_types import ArmResult
from ..bench.samples import disturbances, requests_of, throttled
from ..bench.stats import Gain, median
from ..core.format import at_a_time, count, listing, percent, times, times_span
from ..profiles.known_issues import effect_of
from ..prompts.checks import JSON, TOOLS, WARM
from .asked_again import lost_prefix_cache, prefix_hits
from .decision import (
    APART,
    APART_ROUNDS,
    LARGE,
    LEAST_ROUNDS,
    SUM_TAIL,
    WORTH,
    Cause,
    Decision,
    faster_in_sum,
    slower_in_sum,
)
from .degenerate_text import WORTHLESS, repeating_of
from .evidence import Evidence
from .gates import FAILED, NO_BASELINE, NOT_MEASURED, OUTPUTS, SAMPLED, SCORES
from .noise import busy_processes, groups_of
from .speedup import FEWEST_PROMPTS, HIGH_TAIL, LOW_TAIL, Speedup
from .user_clock import clocks_text, later_first_token
from .verdict_types import SlowPrompt, StartLevel, Starts, SumOfSeconds
from .words import THRESHOLD, Word

# What a reader must know before the word itself; the resolved profile says why.
MARKS = ("synthetic", "unpinned")
#: A prompt that is slower by this is named, and so many of them.
SLOWER = 1 / THRESHOLD
NAMED = 3
#: Words of a headline.
_DOZEN = 12

LOW_BOUND, HIGH_BOUND = f"{100 * (1 - LOW_TAIL):g} %", f"{100 * (1 - HIGH_TAIL):g} %"


def what_follows(evidence: Evidence, decision: Decision) -> str:
    """What follows the word in the sentence."""
    if evidence.invalid or evidence.wrong:
        reasons = [*evidence.invalid, *evidence.wrong]
        if len(reasons) > 1:
            return f"{reasons[0]} (and {count(len(reasons) - 1, 'more reason')})"
        return reasons[0]
    speedup = evidence.measured.speedup
    if speedup is None:
        return "too few prompts: fewer than two were answered in both arms"
    speed = _speed(evidence, speedup)
    if decision.word == Word.CANNOT_SAY:
        why, do = cannot_say(evidence, decision, speedup)
        return "; ".join([f"{decision.cause}: {why}", speed, *failed_alone(evidence), f"do: {do}"])
    parts = [speed]
    if decision.word == Word.DOES_NOT_PAY:
        over_all = _slower_over_all(evidence, speedup)
        if not over_all:
            parts.append(f"the upper bound {_bound(speedup.high, WORTH)} is below {times(WORTH)}")
        elif speedup.speedup > 0:
            parts.insert(0, over_all)
    parts += [_slow_text(evidence), _control_text(evidence, decision), *failed_alone(evidence)]
    parts += [unchecked(evidence), worthless(evidence), clocks_text(evidence.clock)]
    return "; ".join(filter(None, parts))


def headline(evidence: Evidence, decision: Decision) -> str:
    """What follows the word, in a dozen words."""
    if evidence.invalid:
        reason = evidence.invalid[0]
        if len(reason.split()) < _DOZEN:
            return reason
        return "the numbers prove nothing"
    if evidence.wrong:
        return "wrong output"
    speedup = evidence.measured.speedup
    if speedup is None:
        return "too few prompts"
    if decision.word == Word.CANNOT_SAY:
        return str(decision.cause)
    if decision.word == Word.DOES_NOT_PAY and speedup.speedup > 0:
        return _slower_over_all(evidence, speedup) or _faster(evidence, speedup)
    return _faster(evidence, speedup)


def _slower_over_all(evidence: Evidence, speedup: Speedup) -> str:
    total = evidence.measured.total
    if total is None or not slower_in_sum(speedup, total):
        return ""
    return f"faster on most prompts, slower over all: {times(math.exp(total.ratio))}"


def _speed(evidence: Evidence, speedup: Speedup) -> str:
    """The speed-up as measured: how much, on what, at which concurrency, and over all seconds."""
    speed = f"{_faster(evidence, speedup)}, {at_a_time(evidence.concurrency)}"
    total = evidence.measured.total
    if total is None:
        return speed
    return f"{speed}, {times(math.exp(total.ratio))} over the seconds of all answers"


def _faster(evidence: Evidence, speedup: Speedup) -> str:
    """How much faster, and on what."""
    figures = speedup.as_dict()
    span = times_span(figures)
    speed = f"no clear difference, {span}"
    if figures["low"] > 1.0:
        speed = f"{span} faster"
    elif figures["high"] < 1.0:
        speed = f"slower, {span} the speed"
    kinds = listing(evidence.kinds) or "all kinds of prompt"
    return f"{speed} per token on {kinds}"


def cannot_say(evidence: Evidence, decision: Decision, speedup: Speedup) -> tuple[str, str]:
    """Why nothing can be said, and what would settle it."""
    if evidence.disturbed and evidence.by_speed.word != Word.CANNOT_SAY:
        return evidence.disturbed[0].what, evidence.disturbed[0].do
    rounds, prompts = count(speedup.rounds, "round"), count(len(speedup.prompt_gains), "prompt")
    apart, arm = speedup.starts.apart
    if decision.cause == Cause.MORE_ROUNDS:
        if speedup.rounds < 2:
            return "one start of each arm does not show how much starts differ", "measure two rounds or more"
        return (
            f"a gain below {times(LARGE)} needs {LEAST_ROUNDS} rounds, and there were {speedup.rounds}",
            "allow more rounds (experiment.budget)",
        )
    total = evidence.measured.total
    if (
        total
        and speedup.enough_for_claim
        and speedup.low > math.log(THRESHOLD)
        and not faster_in_sum(evidence.measured)
    ):
        together = f"all answers together, {times(math.exp(total.ratio))}"
        return f"most prompts are faster, but not surely {together}", "add prompts of the declared kinds"
    if decision.cause == Cause.TOO_FEW_PROMPTS:
        if len(speedup.prompt_gains) < FEWEST_PROMPTS:
            return f"{prompts}, and {FEWEST_PROMPTS} are needed", "add prompts of the declared kinds"
        spread = math.sqrt(speedup.from_prompts)
        return (
            f"{prompts} differ so much in what they gain that the speed-up is known to {percent(spread)} only",
            "allow more rounds, or add prompts of the declared kinds",
        )
    if decision.cause == Cause.STARTS_DIFFER:
        if apart >= APART and speedup.rounds < APART_ROUNDS:
            return (
                f"two starts of {arm} differ by {100 * (apart - 1):.0f} %, which needs {APART_ROUNDS} rounds",
                "allow more rounds (experiment.budget)",
            )
        return (
            f"starts of one server differ by {percent(math.sqrt(speedup.starts.variance))} (standard deviation), and "
            f"{rounds} are too few to average that out",
            "let nothing else run on the box, or allow more rounds",
        )
    noise = math.sqrt(speedup.starts.anchor_noise)
    return (
        f"single answers vary so much that a start's speed is known to {percent(noise)} only",
        "let nothing else run on the box, or allow more rounds",
    )


def reasons_of(evidence: Evidence, decision: Decision) -> list[str]:
    """All the reasons for the word, the weightiest first."""
    if evidence.invalid:
        return [*evidence.invalid, *evidence.wrong]
    found = list(evidence.wrong)
    speedup, total = evidence.measured.speedup, evidence.measured.total
    if speedup is None:
        return [*found, "fewer than two prompts were measured in both arms"]
    found += [one.what for one in evidence.disturbed]
    if decision.word == Word.CANNOT_SAY:
        found.append(cannot_say(evidence, decision, speedup)[0])
    prompts = count(len(speedup.prompt_gains), "prompt")
    lower, upper = "above", "below"
    if speedup.low <= math.log(THRESHOLD):
        lower = "not above"
    if speedup.high >= math.log(WORTH):
        upper = "not below"
    found.append(
        f"the lower {LOW_BOUND} bound of the speed-up over {prompts} in {count(speedup.rounds, 'round')} is "
        f"{_bound(speedup.low, THRESHOLD)}, {lower} {times(THRESHOLD)}; the upper {HIGH_BOUND} bound is "
        f"{_bound(speedup.high, WORTH)}, {upper} {times(WORTH)}"
    )
    if total:
        reach = total.bound(SUM_TAIL, speedup)
        found.append(
            f"the seconds of all answers at equal lengths give {times(math.exp(total.ratio))} in sum, surely "
            f"(90 %) above {times(math.exp(total.ratio - reach))}"
        )
    if evidence.nothing_drafted:
        found.append(f"the drafter proposed nothing on {listing(evidence.declared)}")
    if evidence.control:
        found.append(f"the baseline against itself, round over round, gives {times_span(evidence.control)}")
    return found


def failed_alone(evidence: Evidence) -> list[str]:
    """What the speculative arm alone got wrong in JSON or tool calls, too seldom for the gate to fail."""
    found = []
    for gate in evidence.gates:
        ours, theirs = gate["baseline"], gate["speculative"]
        if gate["name"] in (JSON, TOOLS) and gate["word"] != FAILED and theirs.get("wrong") and not ours.get("wrong"):
            losses = f"{gate['title']}: {theirs['said']} with speculation, {ours['said']} without"
            if theirs["examples"]:
                losses += f" ({theirs['examples'][0]})"
            found.append(losses)
    return found


def unchecked(evidence: Evidence) -> str:
    """Which outputs could not be checked, for the sentence; empty where all were."""
    words = {gate["name"]: gate["word"] for gate in evidence.gates}
    nothing = (NOT_MEASURED, NO_BASELINE, None)
    if words.get(SCORES) not in nothing:
        return ""
    temperatures = set()
    for result in evidence.results.values():
        for request in requests_of(result):
            if str(request.get("group")) in evidence.declared:
                temperatures.add(request.get("temperature", 0.0))
    if None in temperatures:
        return "outputs not checked"  # at a temperature that other people's files do not tell
    blind = []
    for temperature in sorted(temperatures):
        if words.get(SAMPLED if temperature else OUTPUTS) in nothing:
            blind.append(f"{temperature:g}")
    if not blind:
        return ""
    return f"outputs not checked at {listing(blind)}"


def worthless(evidence: Evidence) -> str:
    """That the baseline's own answers say the same again and again, for the sentence: no arm did real work then."""
    requests = requests_of(evidence.results["baseline"])
    declared = [request for request in requests if str(request.get("group")) in evidence.declared]
    repeating, answers = repeating_of(declared)
    if not answers or repeating < WORTHLESS * answers:
        return ""
    said = f"{repeating} of {count(answers, 'answer')} of the baseline repeat themselves"
    return f"{said}, so this is no figure of real work"


def slowest_prompts(speedup: Speedup | None) -> list[SlowPrompt]:
    """The prompts that gain least, the slowest first."""
    if speedup is None:
        return []
    ordered = sorted(speedup.prompt_gains.items(), key=lambda item: item[1])
    found: list[SlowPrompt] = []
    for prompt, gain in ordered[:NAMED]:
        kind, prompt_id = prompt if isinstance(prompt, tuple) else ("", prompt)
        found.append({"kind": str(kind), "prompt_id": str(prompt_id), "gain": math.exp(gain)})
    return found


def slower_share(speedup: Speedup | None) -> float | None:
    """The share of the prompts whose gain is below 1/1.03; None without a speed-up."""
    if speedup is None:
        return None
    slower = [gain for gain in speedup.prompt_gains.values() if math.exp(gain) < SLOWER]
    return len(slower) / len(speedup.prompt_gains)


def starts_of(speedup: Speedup | None) -> Starts | None:
    """What a report keeps of the starts; levels are the time per token over the arm's mean."""
    if speedup is None:
        return None
    apart, arm = speedup.starts.apart
    shown: list[StartLevel] = []
    for name, levels in speedup.starts.effects.items():
        for number, level in levels.items():
            shown.append({"arm": name, "round": number, "level": math.exp(level)})
    return {
        "spread": math.sqrt(speedup.starts.variance),
        "levels": shown,
        "apart": apart,
        "apart_arm": arm,
        "from_prompts": math.sqrt(speedup.from_prompts),
        "from_starts": math.sqrt(speedup.from_starts),
    }


def seconds_of(evidence: Evidence) -> SumOfSeconds | None:
    """What a report keeps of the sum of seconds."""
    speedup, total = evidence.measured.speedup, evidence.measured.total
    if speedup is None or total is None:
        return None
    return {
        "ratio": math.exp(total.ratio),
        "low": math.exp(total.ratio - total.bound(SUM_TAIL, speedup)),
        "high": math.exp(total.ratio + total.bound(LOW_TAIL, speedup)),
        "by_temperature": {
            f"{temperature:g}": math.exp(part.ratio) for temperature, part in evidence.measured.by_temperature.items()
        },
    }


def _slow_text(evidence: Evidence) -> str:
    """The slowest prompts by name, where some are slower than the baseline."""
    speedup = evidence.measured.speedup
    if speedup is None:
        return ""
    named = []
    for prompt in slowest_prompts(speedup):
        if prompt["gain"] < SLOWER:
            named.append(f"{prompt['prompt_id']} {times(prompt['gain'])}")
    if not named:
        return ""
    return f"slower on {percent(slower_share(speedup))} of the prompts (the slowest: {listing(named)})"


def _control_text(evidence: Evidence, decision: Decision) -> str:
    """That the lower bound lies within what the baseline differs by from itself, where it pays."""
    control, speedup = evidence.control, evidence.figures["speedup"]
    if decision.word != Word.PAYS or not control or not speedup:
        return ""
    if speedup["low"] > max(control["high"], 1 / control["low"]):
        return ""
    return f"its lower bound lies within the range of the baseline against itself, {times_span(control)}"


def _bound(log_bound: float, limit: float) -> str:
    """A bound with enough digits to stand on one side of a limit."""
    bound = math.exp(log_bound)
    digits = 2
    while digits < 6 and round(bound, digits) == limit:
        digits += 1
    return times(bound, digits)


# --- warnings ---------------------------------------------------------------------------------------


def warnings_of(evidence: Evidence, decision: Decision) -> list[str]:
    """What a reader must know beside the verdict, a sentence each."""
    results = evidence.results
    found = [
        *_profile_warnings(evidence),
        *_control_warnings(evidence.control),
        *_other_work(results),
        *_polluted_elsewhere(evidence),
    ]
    notes: list[str] = []
    for result in results.values():
        notes += map(str, result.get("notes") or [])
    found += list(dict.fromkeys(notes))
    found += [*_repeated_prompts(evidence), *_unequal_outputs(evidence), *_slower_groups(evidence, decision)]
    if any(gate["name"] == WARM for gate in evidence.gates):
        lost = lost_prefix_cache(prefix_hits(results["baseline"]), prefix_hits(results["speculative"]))
        if lost:
            found.append(lost)
    if late := later_first_token(evidence.clock):
        found.append(late)
    found += [f"{finding['said']} ({finding['code']}); {finding['do']}" for finding in evidence.acceptance]
    return [*found, *throttled(results), *gpu_trouble(results)]


def _profile_warnings(evidence: Evidence) -> list[str]:
    resolved = evidence.resolved
    found = []
    for mark in MARKS:
        if why := resolved.get(mark):
            found.append(f"{mark} profile: {why}")
    marked = tuple(f"{mark}:" for mark in MARKS)
    for warning in resolved.get("warnings") or []:
        if not str(warning).startswith(marked):
            found.append(str(warning))
    for issue in resolved.get("known_issues") or []:
        # What is refused says so itself, or was not asked for in a measurement.
        if issue["effect"] != "refused":
            found.append(f"known issue {issue['id']}: {issue['what']}; {effect_of(issue)}")
    return found


def _control_warnings(control: Gain | None) -> list[str]:
    if control is None:
        return ["no A/A control: the baseline ran one round, so its own drift is unknown"]
    if control["high"] >= 1 / THRESHOLD and control["low"] <= THRESHOLD:
        return []
    return [
        f"the box was not steady: the baseline against itself gives {times_span(control)}, more than the "
        "3 % that the verdict looks for"
    ]


def _other_work(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each arm beside which something else used the machine."""
    found: list[str] = []
    for arm, result in results.items():
        shares = []
        for group in groups_of(result):
            share = (group.get("between") or {}).get("other_cpu_percent")
            if isinstance(share, int | float):
                shares.append(share)
        if shares and median(shares) > OTHER_CPU_PERCENT:
            taken = f"{arm}: other work took {median(shares):.0f} % of the machine's CPU while it was measured (median)"
            if names := listing(busy_processes(result.get("machine"))[:5]):
                taken += f": {names}"
            found.append(taken)
    return found


def _polluted_elsewhere(evidence: Evidence) -> list[str]:
    found = []
    for arm, result in evidence.results.items():
        for group, number, why in disturbances(result):
            # Of a kind that the verdict is about it is a reason, and stands there.
            if group not in evidence.declared:
                found.append(f"{arm}: {group} is polluted in round {number}, so its numbers cannot be trusted: {why}")
    return found


def _repeated_prompts(evidence: Evidence) -> list[str]:
    requests = requests_of(evidence.results["baseline"])
    repeated = sorted({str(r.get("kind")) for r in requests if "#" in str(r.get("prompt_id"))})
    if not repeated:
        return []
    return [
        f"{listing(repeated)} repeats one prompt: its interval covers only that prompt, and a drafter "
        "that remembers earlier answers (n-gram pools, suffix trees) looks faster there than on new text"
    ]


def _unequal_outputs(evidence: Evidence) -> list[str]:
    both, again = evidence.figures["outputs"]["speculative"], evidence.figures["outputs"]["control"]
    baseline_share, twice = 1.0, ""
    if again:
        baseline_share = again["share"]
        twice = f", and in {percent(baseline_share)} when the baseline is asked twice"
    if not both or both["share"] >= baseline_share:
        return []
    kinds, equal = listing(evidence.declared), percent(both["share"])
    return [f"outputs at temperature 0 on {kinds} are equal in {equal} of the pairs{twice}"]


def _slower_groups(evidence: Evidence, decision: Decision) -> list[str]:
    slower = []
    for group, figures in evidence.groups.items():
        speedup = figures["speedup"]
        if decision.word == Word.PAYS and speedup and speedup["high"] < 1.0:
            slower.append(f"{group} ({times(speedup['gain'])})")
    if not slower:
        return []
    return [f"slower than the baseline on {listing(slower)}"]
