"""Turns a verdict into text: its sentence, its headline, its reasons, and the warnings beside it.

The speed-up is a mean over prompts, the sum compares the seconds of all answers together; the two can disagree. Both
are ratios, above 1 if the speculative arm is faster; `Speedup` and `SumRatio` hold their logarithms. A start is one
start of an arm's server, an anchor a prompt that every round repeats. The A/A control compares the baseline with
itself. A gate is a test whether the outputs are right, a group a prompt kind at one temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..bench.gpu_text import gpu_warnings
from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.result_types import ArmResult
from ..bench.samples import disturbances, rate_limit_sentences, requests_of
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
    Cause,
    Decision,
    faster_in_sum,
    slower_in_sum,
)
from .degenerate_text import WORTHLESS_SHARE, repeating_of
from .evidence import Evidence
from .gates import FAILED, NO_BASELINE, NOT_MEASURED, OUTPUTS, SAMPLED, SCORES
from .noise import busy_processes, groups_of
from .speedup import FEWEST_PROMPTS, HIGH_TAIL, LOW_TAIL, Speedup
from .user_clock import clocks_text, later_first_token
from .verdict_types import SlowPrompt, StartLevel, Starts, SumOfSeconds
from .words import THRESHOLD, WORTH, Word

# Keys of a resolved profile that the sentence shows before the word; their values give the reason: models that are not
# real (`synthetic`), or an engine version that is not fixed (`unpinned`).
MARKS = ("synthetic", "unpinned")
#: Prompts with a gain below this ratio count as slower.
SLOWER_GAIN = 1 / THRESHOLD
#: The verdict lists at most this many slow prompts.
SHOWN_PROMPTS = 3
#: A reason with fewer words serves as the headline.
_HEADLINE_WORDS = 12
# The confidence of the interval's lower and upper bound as text: 99 %, 97.5 %.
LOW_CONFIDENCE = f"{100 * (1 - LOW_TAIL):g} %"
HIGH_CONFIDENCE = f"{100 * (1 - HIGH_TAIL):g} %"


def verdict_text(evidence: Evidence, decision: Decision) -> str:
    """The explanation of a verdict, which follows its word.

    - `invalid` or wrong output: the first reason, and the number of the others.
    - No speed-up: that too few prompts were answered.
    - `cannot say`: the cause, the speed-up, errors of the speculative arm alone, and what to do.
    - `pays`, `does not pay`: the speed-up and its qualifications.
    """
    if evidence.invalid or evidence.wrong:
        reasons = [*evidence.invalid, *evidence.wrong]
        if len(reasons) > 1:
            return f"{reasons[0]} (and {count(len(reasons) - 1, 'more reason')})"
        return reasons[0]
    speedup = evidence.measured.speedup
    if speedup is None:
        return "too few prompts: fewer than two were answered in both arms"
    speedup_text = _speedup_text(evidence, speedup)
    if decision.word == Word.CANNOT_SAY:
        why, do = cannot_say(evidence, decision, speedup)
        return "; ".join([f"{decision.cause}: {why}", speedup_text, *speculative_errors(evidence), f"do: {do}"])
    clauses = [speedup_text]
    if decision.word == Word.DOES_NOT_PAY:
        sum_text = _slower_in_sum_text(evidence, speedup)
        if not sum_text:
            clauses.append(f"the upper bound {_bound_text(speedup.high, WORTH)} is below {times(WORTH)}")
        elif speedup.log_gain > 0:
            # The speed-up alone reads like a gain, so the sum, which decided the word, goes first.
            clauses.insert(0, sum_text)
    clauses += [_slowest_text(evidence), _within_control_text(evidence, decision), *speculative_errors(evidence)]
    clauses += [unchecked_outputs(evidence), repetition_text(evidence), clocks_text(evidence.clock)]
    return "; ".join(filter(None, clauses))


def headline(evidence: Evidence, decision: Decision) -> str:
    """The explanation of a verdict in about a dozen words, without its word."""
    if evidence.invalid:
        reason = evidence.invalid[0]
        if len(reason.split()) < _HEADLINE_WORDS:
            return reason
        return "the numbers prove nothing"
    if evidence.wrong:
        return "wrong output"
    speedup = evidence.measured.speedup
    if speedup is None:
        return "too few prompts"
    if decision.word == Word.CANNOT_SAY:
        return str(decision.cause)
    if decision.word == Word.DOES_NOT_PAY and speedup.log_gain > 0:
        # A gain as the headline of `does not pay` would contradict it.
        return _slower_in_sum_text(evidence, speedup) or _gain_text(evidence, speedup)
    return _gain_text(evidence, speedup)


def _slower_in_sum_text(evidence: Evidence, speedup: Speedup) -> str:
    """The clause for a speculative arm whose seconds in sum are surely more than the baseline's; "" if they are not."""
    total = evidence.measured.total
    if total is None or not slower_in_sum(speedup, total):
        return ""
    return f"faster on most prompts, slower over all: {times(math.exp(total.log_ratio))}"


def _speedup_text(evidence: Evidence, speedup: Speedup) -> str:
    """The measured speed-up: its size, the prompt kinds, the concurrency, and the ratio of all answers' seconds."""
    text = f"{_gain_text(evidence, speedup)}, {at_a_time(evidence.concurrency)}"
    total = evidence.measured.total
    if total is None:
        return text
    return f"{text}, {times(math.exp(total.log_ratio))} over the seconds of all answers"


def _gain_text(evidence: Evidence, speedup: Speedup) -> str:
    """The speed-up with its interval, as faster, slower or no clear difference, and the prompt kinds."""
    gain = speedup.as_dict()
    span = times_span(gain)
    text = f"no clear difference, {span}"
    if gain["low"] > 1.0:
        text = f"{span} faster"
    elif gain["high"] < 1.0:
        text = f"slower, {span} the speed"
    kinds = listing(evidence.kinds) or "all kinds of prompt"
    return f"{text} per token on {kinds}"


def cannot_say(evidence: Evidence, decision: Decision, speedup: Speedup) -> tuple[str, str]:
    """Why the verdict is `cannot say`, and what would settle it.

    The first case that applies decides:

    - a disturbance where the speed alone gave another word;
    - too few rounds;
    - a speed-up that would pay, but seconds in sum that are not surely less;
    - too few prompts, starts that differ, or answers that are too noisy, by the cause in ``decision``.
    """
    # The speed alone gave another word (`by_speed`), so the disturbance is the only cause.
    if evidence.disturbed and evidence.by_speed.word != Word.CANNOT_SAY:
        return evidence.disturbed[0].what, evidence.disturbed[0].do
    prompts_text = count(len(speedup.prompt_gains), "prompt")
    largest_ratio, arm = speedup.starts.apart
    if decision.cause == Cause.TOO_FEW_ROUNDS:
        if speedup.rounds < 2:
            return "one start of each arm does not show how much starts differ", "measure two rounds or more"
        return (
            f"a gain below {times(LARGE)} needs {LEAST_ROUNDS} rounds, and there were {speedup.rounds}",
            "allow more rounds (experiment.budget)",
        )
    total = evidence.measured.total
    # The speed-up alone would be `pays`; only the sum of seconds speaks against it.
    if (
        total
        and speedup.enough_for_claim
        and speedup.low > math.log(THRESHOLD)
        and not faster_in_sum(evidence.measured)
    ):
        sum_text = f"the seconds of all answers together ({times(math.exp(total.log_ratio))}) are not surely less"
        return f"most prompts are faster, but {sum_text}", "add prompts of the declared kinds"
    if decision.cause == Cause.TOO_FEW_PROMPTS:
        if len(speedup.prompt_gains) < FEWEST_PROMPTS:
            return f"{prompts_text}, and {FEWEST_PROMPTS} are needed", "add prompts of the declared kinds"
        error = math.sqrt(speedup.from_prompts)  # the standard error
        return (
            f"{prompts_text} differ so much in what they gain that the speed-up is known to {percent(error)} only",
            "allow more rounds, or add prompts of the declared kinds",
        )
    if decision.cause == Cause.STARTS_DIFFER:
        if largest_ratio >= APART and speedup.rounds < APART_ROUNDS:
            return (
                f"two starts of {arm} differ by {100 * (largest_ratio - 1):.0f} %, which needs {APART_ROUNDS} rounds",
                "allow more rounds (experiment.budget)",
            )
        return (
            f"starts of one server differ by {percent(math.sqrt(speedup.starts.variance))} (standard deviation), and "
            f"{count(speedup.rounds, 'round')} are too few to average that out",
            "let nothing else run on the box, or allow more rounds",
        )
    answer_noise = math.sqrt(speedup.starts.anchor_noise)
    return (
        f"single answers vary so much that a start's speed is known to {percent(answer_noise)} only",
        "let nothing else run on the box, or allow more rounds",
    )


def reasons_of(evidence: Evidence, decision: Decision) -> list[str]:
    """The reasons for the word, the most important first, then the figures behind it."""
    # The word `invalid` does not follow from the figures.
    if evidence.invalid:
        return [*evidence.invalid, *evidence.wrong]
    reasons = list(evidence.wrong)
    speedup = evidence.measured.speedup
    total = evidence.measured.total
    if speedup is None:
        return [*reasons, "fewer than two prompts were measured in both arms"]
    reasons += [disturbance.what for disturbance in evidence.disturbed]
    if decision.word == Word.CANNOT_SAY:
        why, _advice = cannot_say(evidence, decision, speedup)
        reasons.append(why)
    prompts_text = count(len(speedup.prompt_gains), "prompt")
    lower = "above"
    upper = "below"
    if speedup.low <= math.log(THRESHOLD):
        lower = "not above"
    if speedup.high >= math.log(WORTH):
        upper = "not below"
    reasons.append(
        f"the lower {LOW_CONFIDENCE} bound of the speed-up over {prompts_text} in {count(speedup.rounds, 'round')} is "
        f"{_bound_text(speedup.low, THRESHOLD)}, {lower} {times(THRESHOLD)}; the upper {HIGH_CONFIDENCE} bound is "
        f"{_bound_text(speedup.high, WORTH)}, {upper} {times(WORTH)}"
    )
    if total:
        half_width = total.half_width(SUM_TAIL, speedup)
        reasons.append(
            f"the seconds of all answers at equal lengths give {times(math.exp(total.log_ratio))} in sum, surely "
            f"(90 %) above {times(math.exp(total.log_ratio - half_width))}"
        )
    if evidence.nothing_drafted:
        reasons.append(f"the drafter proposed nothing on {listing(evidence.declared)}")
    if evidence.control:
        reasons.append(f"the baseline against itself, round over round, gives {times_span(evidence.control)}")
    return reasons


def speculative_errors(evidence: Evidence) -> list[str]:
    """Wrong JSON and tool calls of the speculative arm alone, too few for the gate to fail; a text per gate."""
    errors = []
    for gate in evidence.gates:
        base = gate["baseline"]
        spec = gate["speculative"]
        if gate["name"] in (JSON, TOOLS) and gate["word"] != FAILED and spec.get("wrong") and not base.get("wrong"):
            text = f"{gate['title']}: {spec['said']} with speculation, {base['said']} without"
            if spec["examples"]:
                text += f" ({spec['examples'][0]})"
            errors.append(text)
    return errors


def unchecked_outputs(evidence: Evidence) -> str:
    """The clause that names temperatures at which no gate compared the outputs; "" if all were compared.

    The gate `scores` covers every temperature, `outputs` temperature 0, and `sampled` those above it.
    """
    words = {gate["name"]: gate["word"] for gate in evidence.gates}
    not_checked = (NOT_MEASURED, NO_BASELINE, None)  # None: the results have no such gate
    if words.get(SCORES) not in not_checked:
        return ""
    temperatures = set()
    for result in evidence.results.values():
        for request in requests_of(result):
            if str(request.get("group")) in evidence.declared:
                temperatures.add(request.get("temperature", 0.0))
    if None in temperatures:
        return "outputs not checked"  # imported files may lack the temperature
    unchecked = []
    for temperature in sorted(temperatures):
        if words.get(SAMPLED if temperature else OUTPUTS) in not_checked:
            unchecked.append(f"{temperature:g}")
    if not unchecked:
        return ""
    return f"outputs not checked at {listing(unchecked)}"


def repetition_text(evidence: Evidence) -> str:
    """The clause for a baseline whose answers mostly repeat themselves, so that no real work was measured; else ""."""
    requests = requests_of(evidence.results["baseline"])
    declared = [request for request in requests if str(request.get("group")) in evidence.declared]
    repeating, answers = repeating_of(declared)
    if not answers or repeating < WORTHLESS_SHARE * answers:
        return ""
    text = f"{repeating} of {count(answers, 'answer')} of the baseline repeat themselves"
    return f"{text}, so this is no figure of real work"


def slowest_prompts(speedup: Speedup | None) -> list[SlowPrompt]:
    """The `SHOWN_PROMPTS` prompts with the smallest gain, the smallest first; empty without a speed-up."""
    if speedup is None:
        return []
    ordered = sorted(speedup.prompt_gains.items(), key=lambda item: item[1])
    slowest: list[SlowPrompt] = []
    for key, gain in ordered[:SHOWN_PROMPTS]:
        kind, prompt_id = key if isinstance(key, tuple) else ("", key)  # (kind, id) in `measured.py`
        slowest.append({"kind": str(kind), "prompt_id": str(prompt_id), "gain": math.exp(gain)})
    return slowest


def slower_share(speedup: Speedup | None) -> float | None:
    """The fraction of the prompts whose gain is below `SLOWER_GAIN`; None without a speed-up."""
    if speedup is None:
        return None
    slower = [gain for gain in speedup.prompt_gains.values() if math.exp(gain) < SLOWER_GAIN]
    return len(slower) / len(speedup.prompt_gains)


def starts_of(speedup: Speedup | None) -> Starts | None:
    """The server starts for the report, from logarithms to ratios and fractions; None without a speed-up."""
    if speedup is None:
        return None
    largest_ratio, arm = speedup.starts.apart
    levels: list[StartLevel] = []
    for arm_name, effects in speedup.starts.effects.items():
        for round_number, effect in effects.items():
            levels.append({"arm": arm_name, "round": round_number, "level": math.exp(effect)})
    return {
        "spread": math.sqrt(speedup.starts.variance),
        "levels": levels,
        "apart": largest_ratio,
        "apart_arm": arm,
        "from_prompts": math.sqrt(speedup.from_prompts),
        "from_starts": math.sqrt(speedup.from_starts),
    }


def seconds_of(evidence: Evidence) -> SumOfSeconds | None:
    """The ratio of the arms' seconds in sum for the report, with its one-sided 90 % lower and 99 % upper bounds.

    None without a speed-up, whose spread of starts the bounds include, or without a sum.
    """
    speedup = evidence.measured.speedup
    total = evidence.measured.total
    if speedup is None or total is None:
        return None
    return {
        "ratio": math.exp(total.log_ratio),
        "low": math.exp(total.log_ratio - total.half_width(SUM_TAIL, speedup)),
        "high": math.exp(total.log_ratio + total.half_width(LOW_TAIL, speedup)),
        "by_temperature": {
            f"{temperature:g}": math.exp(part.log_ratio)
            for temperature, part in evidence.measured.by_temperature.items()
        },
    }


def _slowest_text(evidence: Evidence) -> str:
    """The clause that names the slowest prompts, if they are slower than the baseline; else ""."""
    speedup = evidence.measured.speedup
    if speedup is None:
        return ""
    slower_prompts = []
    for prompt in slowest_prompts(speedup):
        if prompt["gain"] < SLOWER_GAIN:
            slower_prompts.append(f"{prompt['prompt_id']} {times(prompt['gain'])}")
    if not slower_prompts:
        return ""
    return f"slower on {percent(slower_share(speedup))} of the prompts (the slowest: {listing(slower_prompts)})"


def _within_control_text(evidence: Evidence, decision: Decision) -> str:
    """The clause for a `pays` whose lower bound lies within the range of the A/A control; else ""."""
    control = evidence.control
    speedup = evidence.figures["speedup"]
    if decision.word != Word.PAYS or not control or not speedup:
        return ""
    # A drift of the baseline could favour either arm, so both directions count.
    if speedup["low"] > max(control["high"], 1 / control["low"]):
        return ""
    return f"its lower bound lies within the range of the baseline against itself, {times_span(control)}"


def _bound_text(log_bound: float, limit: float) -> str:
    """A bound (given as logarithm) as ratio, with enough digits, up to six, to differ from ``limit``."""
    bound = math.exp(log_bound)
    digits = 2
    while digits < 6 and round(bound, digits) == limit:
        digits += 1
    return times(bound, digits)


def warnings_of(evidence: Evidence, decision: Decision) -> list[str]:
    """The warnings beside the verdict, one sentence each."""
    results = evidence.results
    warnings = [
        *_profile_warnings(evidence),
        *_control_warnings(evidence.control),
        *_other_work_warnings(results),
        *_pollution_warnings(evidence),
    ]
    notes: list[str] = []  # what the client noted while it measured; both arms may have the same
    for result in results.values():
        notes += map(str, result.get("notes") or [])
    warnings += list(dict.fromkeys(notes))
    warnings += [*_repeated_prompts(evidence), *_unequal_outputs(evidence), *_slower_groups(evidence, decision)]
    # Without the gate `warm` no prompt was repeated to hit the prefix cache.
    if any(gate["name"] == WARM for gate in evidence.gates):
        cache_warning = lost_prefix_cache(prefix_hits(results["baseline"]), prefix_hits(results["speculative"]))
        if cache_warning:
            warnings.append(cache_warning)
    if ttft_warning := later_first_token(evidence.clock):
        warnings.append(ttft_warning)
    warnings += [f"{finding['said']} ({finding['code']}); {finding['do']}" for finding in evidence.acceptance]
    return [*warnings, *rate_limit_sentences(results), *gpu_warnings(results)]


def _profile_warnings(evidence: Evidence) -> list[str]:
    """The warnings of the resolved profile: its marks, its own warnings, and known issues of the engine."""
    resolved = evidence.resolved
    warnings = []
    for mark in MARKS:
        if why := resolved.get(mark):
            warnings.append(f"{mark} profile: {why}")
    marked = tuple(f"{mark}:" for mark in MARKS)  # the resolver warns of the marks, too: drop these
    for warning in resolved.get("warnings") or []:
        if not str(warning).startswith(marked):
            warnings.append(str(warning))
    for issue in resolved.get("known_issues") or []:
        # An option that the engine refuses is no warning: the engine reports it, or it was not used here.
        if issue["effect"] != "refused":
            warnings.append(f"known issue {issue['id']}: {issue['what']}; {effect_of(issue)}")
    return warnings


def _control_warnings(control: Gain | None) -> list[str]:
    """A warning if there is no A/A control, or if it shows a drift of more than the threshold; else empty."""
    if control is None:
        return ["no A/A control: the baseline ran one round, so its own drift is unknown"]
    if control["high"] >= 1 / THRESHOLD and control["low"] <= THRESHOLD:
        return []
    return [
        f"the box was not steady: the baseline against itself gives {times_span(control)}, more than the "
        "3 % that the verdict looks for"
    ]


def _other_work_warnings(results: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each arm during which other processes used more than `OTHER_CPU_PERCENT` of the CPU."""
    warnings: list[str] = []
    for arm, result in results.items():
        shares = []
        for group in groups_of(result):
            share = (group.get("between") or {}).get("other_cpu_percent")
            if isinstance(share, int | float):
                shares.append(share)
        if shares and median(shares) > OTHER_CPU_PERCENT:
            text = f"{arm}: other work took {median(shares):.0f} % of the machine's CPU while it was measured (median)"
            if names := listing(busy_processes(result.get("machine"))[:5]):
                text += f": {names}"
            warnings.append(text)
    return warnings


def _pollution_warnings(evidence: Evidence) -> list[str]:
    """A warning for each undeclared group that other traffic or a suspended machine disturbed (polluted)."""
    texts = []
    for arm, result in evidence.results.items():
        for group, number, why in disturbances(result):
            # A polluted declared group makes the verdict invalid and is listed among its reasons.
            if group not in evidence.declared:
                texts.append(f"{arm}: {group} is polluted in round {number}, so its numbers cannot be trusted: {why}")
    return texts


def _repeated_prompts(evidence: Evidence) -> list[str]:
    """A warning for kinds that repeat a prompt; the id of a repeat ends in "#" and its number."""
    requests = requests_of(evidence.results["baseline"])
    repeated_kinds = sorted({str(request.get("kind")) for request in requests if "#" in str(request.get("prompt_id"))})
    if not repeated_kinds:
        return []
    return [
        f"{listing(repeated_kinds)} repeats one prompt: its interval covers only that prompt, and a drafter "
        "that remembers earlier answers (n-gram pools, suffix trees) looks faster there than on new text"
    ]


def _unequal_outputs(evidence: Evidence) -> list[str]:
    """A warning if fewer outputs are equal between the arms than in two rounds of the baseline (the control)."""
    between_arms = evidence.figures["outputs"]["speculative"]
    control = evidence.figures["outputs"]["control"]
    # Without a control, all are expected to be equal.
    baseline_share = 1.0
    control_text = ""
    if control:
        baseline_share = control["share"]
        control_text = f", and in {percent(baseline_share)} when the baseline is asked twice"
    if not between_arms or between_arms["share"] >= baseline_share:
        return []
    groups = listing(evidence.declared)
    equal_share = percent(between_arms["share"])
    return [f"outputs at temperature 0 on {groups} are equal in {equal_share} of the pairs{control_text}"]


def _slower_groups(evidence: Evidence, decision: Decision) -> list[str]:
    """A warning beside `pays` that names the groups that are surely slower; empty without one."""
    slower = []
    for group, figures in evidence.groups.items():
        speedup = figures["speedup"]
        if decision.word == Word.PAYS and speedup and speedup["high"] < 1.0:
            slower.append(f"{group} ({times(speedup['gain'])})")
    if not slower:
        return []
    return [f"slower than the baseline on {listing(slower)}"]
