"""The verdict: does speculation pay on the work a profile declares, does it not, or can nothing be said.

The rule. Each prompt is reduced to its median TPOT over the rounds, in either arm; the ratio of the two
(baseline over speculative) is that prompt's speed-up, and of one that was asked at several temperatures the
geometric mean of theirs, because answers to one prompt gain alike and would count twice. The median over the
prompts gets an interval that knows of both, prompts and server starts (`start_noise.py`), and of how often the results
are looked at (`rounds.py`). Speculation pays when the interval's lower end is above 1.03, when no gate says that its
output is wrong (`gates.py`), and when nothing else reaches as far as the gain (`noise.py`): then nobody can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..bench.gpu_text import gpu_trouble
from ..bench.result_types import ArmResult
from ..bench.samples import (
    Prompt,
    apart_from_temperature,
    disturbances,
    gave_nothing,
    measured_tpot,
    requests_of,
    rounds_of,
    throttled,
    tpot_by_prompt,
)
from ..bench.stats import CONFIDENCE, Estimated, geometric_means, median_interval, paired_ratios, values_needed
from ..bench.usage_check import contradictions, sources_of
from ..core.format import count, listing
from ..profiles.planned_types import PlannedExperiment
from ..profiles.resolved_types import ResolvedProfile
from .acceptance_findings import acceptance_findings
from .answered import unanswered
from .arm_diff import file_differences, result_differences, stale
from .drafting import counter_of, drafting_of, drafting_problems
from .gates import FAILED, OUTPUTS, judge_gates
from .noise import disturbed, odd_steps
from .output_equality import compare_outputs
from .start_noise import Looks, Speedup, speedup_of
from .user_clock import later_first_token, slower_to_answer, user_clock, with_clock
from .verdict_text import (
    CANNOT_SAY,
    DOES_NOT_PAY,
    INVALID,
    MARKS,
    PAYS,
    PERCENT,
    THRESHOLD,
    busy_processes,
    reasons_of,
    said_of,
    warnings_of,
)
from .verdict_types import Control, Figures, JudgedGroup, Judgement

# What others read from here.
__all__ = [
    "BROKEN",
    "CANNOT_SAY",
    "DOES_NOT_PAY",
    "INVALID",
    "MARKS",
    "PAYS",
    "PERCENT",
    "RESULT_SCHEMA",
    "THRESHOLD",
    "Prompt",
    "busy_processes",
    "drafting_of",
    "judge",
    "measured_tpot",
    "tpot_by_prompt",
]

RESULT_SCHEMA = "drafthouse.result/1"
# How the client calls an answer that is not whole, and how a person does.
BROKEN = {
    "failed": "failed",
    "cut_off": "cut off",
    "empty": "empty",
    "no_usage": "without a token count (usage)",
}

Pair = tuple[Any, Any, Any]


def judge(baseline: ArmResult, speculative: ArmResult, resolved: ResolvedProfile) -> Judgement:
    """Return the verdict over two results of one resolved profile, as plain data.

    ``word`` is pays, does not pay, cannot say or invalid, ``sentence`` the same for people (``said`` is what follows
    the word), ``reasons`` all the reasons for it. ``speedup`` is over the declared kinds, ``groups`` holds the
    same for each group of prompts, ``control`` sets the baseline's rounds against each other, ``starts`` says what
    server starts differ by (`start_noise.Speedup.as_dict`). How often the results were looked at follows from the
    rounds done and the profile's ``most_rounds``.
    ``user_clock`` is what a user waits for (`user_clock.py`): where that does not pay, nor does the time per token.
    ``counts`` tells with what the token counts were compared (`usage_check.py`).
    An invalid pair keeps the numbers that can be computed, for whoever looks for the cause. Nothing is
    raised for a bad result: it is a reason. ``gates`` is what `judge_gates` says, ``wrong_output`` whether one
    of them failed: then the word is "does not pay", whatever the speed.
    """
    results = {"baseline": baseline, "speculative": speculative}
    experiment = resolved.get("experiment") or {}
    kinds = [str(kind) for kind in experiment.get("kinds") or []]
    seen = list(dict.fromkeys(str(r.get("group")) for r in requests_of(baseline) + requests_of(speculative)))
    declared = _declared(results, kinds, seen)
    present = [*declared, *(group for group in seen if group not in declared)]
    done = len(rounds_of(requests_of(speculative)))
    most = int(experiment.get("most_rounds") or experiment.get("rounds") or done)
    looks = Looks(done, most, experiment.get("schedule") == "interleaved")
    tpot = {arm: tpot_by_prompt(requests_of(result)) for arm, result in results.items()}
    groups: dict[str, JudgedGroup] = {
        group: {**_figures(baseline, speculative, tpot, [group], looks)[0], "declared": group in declared}
        for group in present
    }
    figures, starts = _figures(baseline, speculative, tpot, declared, looks)
    drafting = {arm: drafting_of(result) for arm, result in results.items()}
    accepted = acceptance_findings(speculative, resolved)
    gates = judge_gates(baseline, speculative, resolved)
    # What a single check says is plainer than that texts differ.
    told = sorted(gates, key=lambda gate: bool(gate["name"] == OUTPUTS))
    wrong = [f"wrong output: {gate['said']}" for gate in told if gate["word"] == FAILED]
    speedup = figures["speedup"]
    drafted = sum(counter_of((speculative.get("groups") or {}).get(group), "draft_tokens") or 0 for group in declared)
    counted = any(
        counter_of((speculative.get("groups") or {}).get(group), "draft_tokens") is not None for group in declared
    )
    nothing_drafted = counted and drafted == 0 and bool(drafting["speculative"]["drafted"])
    ahead = speedup is not None and speedup["low"] > THRESHOLD
    clock = user_clock(results, declared)
    slow = slower_to_answer(clock, THRESHOLD) if ahead else None
    against = [
        *_schema(results),
        *_broken(results),
        *_missing(results, experiment, declared, present),
        *unanswered(results, declared),
        *_polluted(results, declared),
        *drafting_problems(drafting),
        *[sentence for arm, result in results.items() for sentence in stale(result, resolved, arm)],
        *file_differences(resolved),
        *result_differences(baseline, speculative),
    ]
    if not wrong:
        # What keeps the speed from being told; of answers that are wrong no speed has to be told.
        against += contradictions(results, declared)
        against += _no_number(results, declared, speedup, ahead and nothing_drafted)
    noise = [] if against or wrong else disturbed(starts, figures["control"], results, declared)
    if against:
        word = INVALID
    elif noise and not wrong:
        word = CANNOT_SAY
    else:
        word = PAYS if ahead and not wrong and not slow else DOES_NOT_PAY
    speed = [*reasons_of(speedup, figures["control"], nothing_drafted, declared), *odd_steps(starts)]
    reasons = (
        [*against, *wrong] if against else [*wrong, *(one.what for one in noise), *([slow] if slow else []), *speed]
    )
    concurrency = speculative.get("max_concurrency", experiment.get("concurrency"))
    # Slower to answer is a reason of its own; the time per token is told as it is.
    told_as = PAYS if slow and word == DOES_NOT_PAY else word
    said = said_of(told_as, speedup, kinds, concurrency, [*against, *wrong] or speed, wrong=bool(wrong))
    if noise:
        said = f"too noisy: {noise[0].what}; do: {noise[0].do}"
    elif not against and not wrong:
        said = with_clock(said, clock, slow)
    marks = "".join(f"{mark}, " for mark in MARKS if resolved.get(mark))
    return {
        "word": word,
        "wrong_output": bool(wrong),
        "sentence": f"{marks}{word}: {said}",
        "said": said,
        "reasons": reasons,
        "warnings": [
            *warnings_of(word, figures, groups, results, resolved, declared),
            *([late] if (late := later_first_token(clock, THRESHOLD)) else []),
            *(f"{one['said']} ({one['code']}); {one['do']}" for one in accepted),
            *throttled(results),
            *gpu_trouble(results),
        ],
        "threshold": THRESHOLD,
        "confidence": CONFIDENCE,
        "scope": {
            "kinds": kinds,
            "groups": declared,
            "concurrency": concurrency,
            "rounds": done,
            "schedule": experiment.get("schedule"),
        },
        "synthetic": resolved.get("synthetic"),
        **figures,
        "user_clock": clock,
        "counts": {arm: sources_of(result) for arm, result in results.items()},
        "starts": starts.as_dict(THRESHOLD) if starts else None,
        "groups": groups,
        "drafting": drafting,
        "acceptance_findings": accepted,
        "gates": gates,
    }


# --- the pairs ------------------------------------------------------------------------------------


def _declared(results: Mapping[str, ArmResult], kinds: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the groups that the verdict is about: those of the declared kinds, at every temperature.

    Where none is declared: all of them, but not those that are there for a gate alone.
    """
    if not kinds:
        gated = {str(r.get("group")) for result in results.values() for r in requests_of(result) if r.get("gate")}
        return [group for group in present if group not in gated] or list(present)
    return sorted(
        {str(r.get("group")) for result in results.values() for r in requests_of(result) if r.get("kind") in kinds}
    )


def _figures(
    baseline: ArmResult,
    speculative: ArmResult,
    tpot: Mapping[str, Mapping[Prompt, Mapping[Any, float]]],
    groups: Sequence[str],
    looks: Looks,
) -> tuple[Figures, Speedup | None]:
    """Return speed-up, A/A control and equality of outputs over some groups; a prompt counts once in all of them.

    The second is the same speed-up with what is known of the starts.
    """
    one, two = (
        {prompt: rounds for prompt, rounds in tpot[arm].items() if prompt[0] in groups}
        for arm in ("baseline", "speculative")
    )
    requests = [[r for r in requests_of(result) if str(r.get("group")) in groups] for result in (baseline, speculative)]
    rounds = rounds_of(requests[0])[:2]
    prompts = apart_from_temperature([*requests[0], *requests[1]])
    speedup = speedup_of(one, two, prompts, looks)
    odd = [number for arm, number, _ in speedup.odd if arm == "baseline"] if speedup else []
    return {
        "speedup": speedup.estimate.as_dict() if speedup else None,
        "control": _control(one, [r for r in rounds_of(requests[0]) if r not in odd], prompts),
        "outputs": {
            "speculative": compare_outputs(requests[0], requests[1]),
            "control": compare_outputs(
                [r for r in requests[0] if r.get("round") == rounds[0]],
                [r | {"round": rounds[0]} for r in requests[0] if r.get("round") == rounds[1]],
            )
            if len(rounds) == 2
            else None,
        },
    }, speedup


def _control(
    tpot: Mapping[Prompt, Mapping[Any, float]], rounds: Sequence[Any], prompts: Mapping[Prompt, Prompt]
) -> Control | None:
    """Return the baseline's odd rounds over its even ones, prompt by prompt: 1 where the box was steady.

    ``rounds`` are those that count; ``rounds`` of the answer names both sides, a number where a side is one round.
    """
    sides = [list(rounds[0::2]), list(rounds[1::2])]
    if not sides[1]:
        return None
    times = [
        {prompt: [by_round[r] for r in side if r in by_round] for prompt, by_round in tpot.items()} for side in sides
    ]
    ratios = geometric_means(paired_ratios(*times), prompts)
    if not ratios:
        return None
    named: list[int | list[int]] = [side[0] if len(side) == 1 else side for side in sides]
    return {**median_interval(list(ratios.values())).as_dict(), "rounds": named}


# --- what makes a pair invalid ----------------------------------------------------------------------


def _schema(results: Mapping[str, ArmResult]) -> list[str]:
    return [
        f"{arm} has the schema {result.get('schema')!r}, and this program reads {RESULT_SCHEMA!r}"
        for arm, result in results.items()
        if result.get("schema") != RESULT_SCHEMA
    ]


def _broken(results: Mapping[str, ArmResult]) -> list[str]:
    """Return a sentence for each way in which an arm's answers were not whole, as its requests say."""
    found: list[str] = []
    for arm, result in results.items():
        requests = requests_of(result)
        if result.get("incomplete"):
            found.append(f"{arm} was stopped before its end")
        if not requests:
            found.append(f"{arm} has no requests")
        for status, words in BROKEN.items():
            judged = [r for r in requests if r.get("status") == status and gave_nothing(r)]
            hits = [r for r in requests if r.get("status") == status and not gave_nothing(r)]
            told = result.get(status)
            if hits:
                first = hits[0]
                why = f": {str(first['error'])[:160]}" if first.get("error") else ""
                found.append(
                    f"{arm}: {len(hits)} of {count(len(requests), 'request')} {words} "
                    f"(first {first.get('prompt_id')}, round {first.get('round')}{why})"
                )
            elif isinstance(told, int) and told > len(judged):
                found.append(f"{arm}: its summary counts {count(told, 'request')} {words}, but its requests show none")
        strange = sorted({str(r.get("status")) for r in requests} - {"ok", *BROKEN})
        if strange:
            found.append(f"{arm}: requests with the unknown status {listing(strange)}")
    return found


def _polluted(results: Mapping[str, ArmResult], declared: Sequence[str]) -> list[str]:
    """Return a sentence for each declared group that something else disturbed: its times are not the arm's own."""
    return [
        f"{arm}: {group} is polluted in round {number}: {said}"
        for arm, result in results.items()
        for group, number, said in disturbances(result)
        if group in declared
    ]


def _missing(
    results: Mapping[str, ArmResult],
    experiment: PlannedExperiment,
    declared: Sequence[str],
    present: Sequence[str],
) -> list[str]:
    """Return where a request of one arm has no partner in the other, or no TPOT to compare."""
    found: list[str] = []
    measured = {
        str(r.get("kind"))
        for result in results.values()
        for r in requests_of(result)
        if str(r.get("group")) in declared
    }
    absent = [str(kind) for kind in experiment.get("kinds") or [] if str(kind) not in measured]
    if absent:
        found.append(
            f"the profile declares {listing(absent)}, but the results have only {listing(list(present)) or 'nothing'}"
        )
    keys: dict[str, list[Pair]] = {
        arm: [(r.get("round"), r.get("group"), r.get("prompt_id")) for r in requests_of(result)]
        for arm, result in results.items()
    }
    one, two = set(keys["baseline"]), set(keys["speculative"])
    for arm, alone in (("speculative", one - two), ("baseline", two - one)):
        if alone:
            names = sorted(f"{key[2]} in round {key[0]}" for key in alone)
            found.append(
                f"{count(len(alone), 'pair')} missing: {arm} has no request for {', '.join(names[:3])}"
                + (", …" if len(names) > 3 else "")
            )
    for arm, seen in keys.items():
        if len(set(seen)) < len(seen):
            found.append(
                f"{arm}: {count(len(seen) - len(set(seen)), 'request')} repeating the round and prompt of another"
            )
    return found


def _no_number(
    results: Mapping[str, ArmResult],
    declared: Sequence[str],
    speedup: Estimated | None,
    faster_without_drafting: bool,
) -> list[str]:
    """Return why no speed-up can be told although all of the requests are there."""
    found: list[str] = []
    for arm, result in results.items():
        short = [
            str(r.get("prompt_id"))
            for r in requests_of(result)
            # A call or a word that a gate looks for may well come in one chunk.
            if r.get("status") == "ok"
            and not r.get("gate")
            and str(r.get("group")) in declared
            and measured_tpot(r) is None
        ]
        if short:
            found.append(
                f"{arm}: {count(len(short), 'answer')} without a TPOT (first {short[0]}): "
                "one token, or all in one chunk"
            )
    needed = values_needed(CONFIDENCE)
    if declared and (speedup is None or speedup["n"] < needed):
        kinds = {str(r.get("kind")) for r in requests_of(results["baseline"]) if str(r.get("group")) in declared}
        once = " (a prompt counts once, whatever its temperatures)" if len(kinds) < len(declared) else ""
        found.append(
            f"{count(speedup['n'] if speedup else 0, 'pair')} of prompts on {listing(declared)}{once}: "
            f"the {PERCENT} interval of a median needs at least {needed}"
        )
    if faster_without_drafting:
        found.append(
            f"the speculative arm was faster on {listing(declared)} without drafting a token there: "
            "something else made it faster"
        )
    return found
