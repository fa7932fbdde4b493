"""The verdict: does speculation pay on the work a profile declares, does it not, or can nothing be said.

The rule. Each prompt is reduced to its median TPOT over the rounds, in either arm; the ratio of the two
(baseline over speculative) is that prompt's speed-up; the median over the prompts gets a bootstrap
interval. Speculation pays when the interval's lower end is above 1.03.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .comparable import file_differences, result_differences, stale
from .stats import CONFIDENCE, bootstrap_median, median, paired_ratios, values_needed
from .wording import at_a_time, count, listing, percent, times, times_span

PAYS, DOES_NOT_PAY, INVALID = "pays", "does not pay", "invalid"
# Below 3 % a restart, a warmer room or another process explains as much: such a gain is not worth a draft.
THRESHOLD = 1.03
PERCENT = f"{100 * CONFIDENCE:.0f} %"
RESULT_SCHEMA = "drafthouse.result/1"
# Other work than this, as a share of the whole machine's CPU, is told beside the verdict.
OTHER_CPU_PERCENT = 10.0
# How the client calls an answer that is not whole, and how a person does.
BROKEN = {
    "failed": "failed",
    "cut_off": "cut off",
    "empty": "empty",
    "no_usage": "without a token count (usage)",
}

# What a reader must know before the word itself; the resolved profile says why.
MARKS = ("synthetic", "unpinned")

Request = Mapping[str, Any]
Result = Mapping[str, Any]
Pair = tuple[Any, Any, Any]
Prompt = tuple[Any, Any]


def judge(baseline: Result, speculative: Result, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict over two results of one resolved profile, as plain data.

    ``word`` is pays, does not pay or invalid, ``sentence`` the same for people (``said`` is what follows the
    word), ``reasons`` all the reasons for it. ``speedup`` is over the declared kinds, ``groups`` holds the
    same for each group of prompts, ``control`` sets the baseline's first two rounds against each other.
    An invalid pair keeps the numbers that can be computed, for whoever looks for the cause. Nothing is
    raised for a bad result: it is a reason.
    """
    results = {"baseline": baseline, "speculative": speculative}
    experiment = resolved.get("experiment") or {}
    kinds = [str(kind) for kind in experiment.get("kinds") or []]
    seen = list(dict.fromkeys(str(r.get("group")) for r in _requests(baseline) + _requests(speculative)))
    declared = _declared(results, kinds, seen)
    present = [*declared, *(group for group in seen if group not in declared)]
    tpot = {arm: tpot_by_prompt(_requests(result)) for arm, result in results.items()}
    groups = {
        group: _figures(baseline, speculative, tpot, [group]) | {"declared": group in declared} for group in present
    }
    figures = _figures(baseline, speculative, tpot, declared)
    drafting = {arm: drafting_of(result) for arm, result in results.items()}
    against = [
        *_schema(results),
        *_broken(results),
        *_missing(results, experiment, declared, present),
        *_drafting(drafting),
        *[sentence for arm, result in results.items() for sentence in stale(result, resolved, arm)],
        *file_differences(resolved),
        *result_differences(baseline, speculative),
    ]
    speedup = figures["speedup"]
    needed = values_needed(CONFIDENCE)
    if declared and (speedup is None or speedup["n"] < needed):
        against.append(
            f"{count(speedup['n'] if speedup else 0, 'pair')} of prompts on {listing(declared)}: "
            f"the {PERCENT} interval of a median needs at least {needed}"
        )
    drafted = sum(_number((speculative.get("groups") or {}).get(group), "draft_tokens") or 0 for group in declared)
    counted = any(
        _number((speculative.get("groups") or {}).get(group), "draft_tokens") is not None for group in declared
    )
    nothing_drafted = counted and drafted == 0 and drafting["speculative"]["drafted"]
    ahead = speedup is not None and speedup["low"] > THRESHOLD
    if ahead and nothing_drafted:
        against.append(
            f"the speculative arm was faster on {listing(declared)} without drafting one token there: "
            "speculation is not what made it faster"
        )
    word = INVALID if against else PAYS if ahead else DOES_NOT_PAY
    reasons = against or _why(word, speedup, figures["control"], nothing_drafted, declared)
    concurrency = speculative.get("max_concurrency", experiment.get("concurrency"))
    said = _said(word, speedup, kinds, concurrency, reasons)
    marks = "".join(f"{mark}, " for mark in MARKS if resolved.get(mark))
    return {
        "word": word,
        "sentence": f"{marks}{word}: {said}",
        "said": said,
        "reasons": reasons,
        "warnings": _warnings(word, figures, groups, results, resolved, declared),
        "threshold": THRESHOLD,
        "confidence": CONFIDENCE,
        "scope": {
            "kinds": kinds,
            "groups": declared,
            "concurrency": concurrency,
            "rounds": len(_rounds(_requests(speculative))),
            "schedule": experiment.get("schedule"),
        },
        "synthetic": resolved.get("synthetic"),
        **figures,
        "groups": groups,
        "drafting": drafting,
    }


# --- the pairs ------------------------------------------------------------------------------------


def _requests(result: Result) -> list[Request]:
    return list(result.get("requests") or [])


def _rounds(requests: Iterable[Request]) -> list[Any]:
    return sorted({r.get("round") for r in requests}, key=lambda value: (value is None, value))


def measured_tpot(request: Request) -> float | None:
    """Return the TPOT of a whole answer in ms, or None: one token, or all in one chunk, has none."""
    value = request.get("tpot_ms")
    usable = request.get("status") == "ok" and isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if usable and value is not None else None


def tpot_by_prompt(requests: Iterable[Request]) -> dict[Prompt, dict[Any, float]]:
    """Return the TPOT in ms of every prompt, by round: ``{(group, prompt_id): {round: ms}}``."""
    found: dict[Prompt, dict[Any, float]] = {}
    for request in requests:
        value = measured_tpot(request)
        if value is not None:
            prompt = str(request.get("group")), request.get("prompt_id")
            found.setdefault(prompt, {})[request.get("round")] = value
    return found


def _declared(results: Mapping[str, Result], kinds: Sequence[str], present: Sequence[str]) -> list[str]:
    """Return the groups that the verdict is about: those of the declared kinds, at every temperature."""
    if not kinds:
        return list(present)
    return sorted(
        {str(r.get("group")) for result in results.values() for r in _requests(result) if r.get("kind") in kinds}
    )


def _figures(
    baseline: Result,
    speculative: Result,
    tpot: Mapping[str, Mapping[Prompt, Mapping[Any, float]]],
    groups: Sequence[str],
) -> dict[str, Any]:
    """Return speed-up, A/A control and equality of outputs over some groups."""
    one, two = (
        {prompt: rounds for prompt, rounds in tpot[arm].items() if prompt[0] in groups}
        for arm in ("baseline", "speculative")
    )
    shared = {prompt: sorted(one[prompt].keys() & two[prompt].keys()) for prompt in one.keys() & two.keys()}
    ratios = paired_ratios(
        {prompt: [one[prompt][r] for r in shared[prompt]] for prompt in one if prompt in shared},
        {prompt: [two[prompt][r] for r in shared[prompt]] for prompt in two if prompt in shared},
    )
    requests = [[r for r in _requests(result) if str(r.get("group")) in groups] for result in (baseline, speculative)]
    rounds = _rounds(requests[0])[:2]
    return {
        "speedup": _interval(list(ratios.values())),
        "control": _control(one, rounds),
        "outputs": {
            "speculative": compare_outputs(requests[0], requests[1]),
            "control": compare_outputs(
                [r for r in requests[0] if r.get("round") == rounds[0]],
                [r | {"round": rounds[0]} for r in map(dict, requests[0]) if r.get("round") == rounds[1]],
            )
            if len(rounds) == 2
            else None,
        },
    }


def _interval(values: Sequence[float]) -> dict[str, Any] | None:
    return bootstrap_median(values).as_dict() if values else None


def _control(tpot: Mapping[Prompt, Mapping[Any, float]], rounds: Sequence[Any]) -> dict[str, Any] | None:
    """Return the baseline's first round over its second, prompt by prompt: 1 where the box was steady."""
    if len(rounds) < 2:
        return None
    first, second = rounds
    ratios = paired_ratios(
        {prompt: [by_round[first]] for prompt, by_round in tpot.items() if first in by_round},
        {prompt: [by_round[second]] for prompt, by_round in tpot.items() if second in by_round},
    )
    interval = _interval(list(ratios.values()))
    return interval | {"rounds": [first, second]} if interval else None


def whole_text(request: Request) -> str:
    """Return all that the model said, thinking included: the arms must agree in that as well."""
    return f"{request.get('reasoning_text') or ''}{request.get('text') or ''}"


def compare_outputs(one: Iterable[Request], two: Iterable[Request]) -> dict[str, Any] | None:
    """Return how many texts at temperature 0 are equal, and where the others first differ (characters).

    ``first_differences`` lists the pairs that differ, earliest first. None where there is no pair.
    """
    texts: dict[Pair, str] = {
        (r.get("round"), r.get("group"), r.get("prompt_id")): whole_text(r)
        for r in one
        if r.get("status") == "ok" and r.get("temperature") == 0
    }
    pairs = 0
    differing: list[dict[str, Any]] = []
    for request in two:
        key = (request.get("round"), request.get("group"), request.get("prompt_id"))
        if request.get("status") != "ok" or request.get("temperature") != 0 or key not in texts:
            continue
        pairs += 1
        before, after = texts[key], whole_text(request)
        if before != after:
            at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
            at = min(len(before), len(after)) if at is None else at
            differing.append(
                {"prompt_id": key[2], "round": key[0], "character": at, "of": max(len(before), len(after))}
            )
    if not pairs:
        return None
    differing.sort(key=lambda item: (item["character"], str(item["prompt_id"])))
    return {
        "pairs": pairs,
        "equal": pairs - len(differing),
        "share": (pairs - len(differing)) / pairs,
        "first_difference_characters": median([item["character"] for item in differing]) if differing else None,
        "first_differences": differing[:20],
    }


# --- did it draft ---------------------------------------------------------------------------------


def _number(block: object, name: str) -> float | None:
    """Return the counter ``spec_decode_[num_]<name>`` of a result or group, None if unknown."""
    if not isinstance(block, Mapping):
        return None
    for key in (f"spec_decode_{name}", f"spec_decode_num_{name}"):
        if isinstance(block.get(key), int | float):
            return float(block[key])
    return None


def drafting_of(result: Result) -> dict[str, Any]:
    """Return whether an arm drafted, and what says so: its counters, its groups' counters, its answers.

    ``drafted`` is True or False, or None where nothing of it speaks about drafting.
    """
    blocks = [result, *(result.get("groups") or {}).values()]
    counters = [_number(block, name) for block in blocks for name in ("drafts", "draft_tokens", "accepted_tokens")]
    answers: list[float] = []
    several = 0
    per_iteration = 0
    trtllm = (result.get("engine") or {}).get("id") == "trtllm" or any(
        (one.get(when) or {}).get("dialect") == "trtllm"
        for one in result.get("counters") or []
        for when in ("before", "after")
    )
    for request in _requests(result):
        timings = request.get("timings")
        if isinstance(timings, Mapping) and isinstance(timings.get("draft_n"), int | float):
            answers.append(float(timings["draft_n"]))
        metrics = request.get("spec_metrics")
        if isinstance(metrics, Mapping) and isinstance(metrics.get("num_draft_tokens"), int | float):
            answers.append(float(metrics["num_draft_tokens"]))
        decoded = request.get("avg_decoded_tokens_per_iter")
        if isinstance(decoded, int | float):
            per_iteration += 1
            # One token an iteration is ordinary decoding; more can only come from accepted drafts.
            several += decoded > 1.0
    numbers = [*[value for value in counters if value is not None], *answers]
    tokens = max(_number(result, "draft_tokens") or 0.0, sum(answers))
    drafted = True if several or any(numbers) else False if numbers or per_iteration else None
    return {
        "drafted": drafted,
        # Nothing but a length of 1: not drafted, or nothing accepted.
        "one_token_an_iteration": per_iteration if not several and not numbers else 0,
        "trtllm": trtllm,
        "source": result.get("spec_decode_source"),
        "draft_tokens": int(tokens),
        "accepted_tokens": _number(result, "accepted_tokens"),
        "requests": len(_requests(result)),
        "several_tokens_an_iteration": several,
    }


def _drafting(drafting: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    base, spec = drafting["baseline"], drafting["speculative"]
    if base["drafted"]:
        what = (
            count(base["draft_tokens"], "token")
            if base["draft_tokens"]
            else f"in {count(base['several_tokens_an_iteration'], 'answer')} of several tokens an iteration"
            if base["several_tokens_an_iteration"]
            else "by its counters"
        )
        found.append(f"the baseline drafted ({what}): it is no baseline")
    if spec["drafted"] is None and spec["trtllm"]:
        found.append(
            "the speculative arm shows no sign of drafting: the server has neither trtllm_spec_decode_* counters "
            "(TensorRT-LLM has them since 1.3.0rc19, with return_perf_metrics) nor avg_decoded_tokens_per_iter in "
            "its answers (gpt-oss's own chat format leaves it out)"
        )
    elif spec["one_token_an_iteration"]:
        found.append(
            "nothing shows that the speculative arm drafted: "
            f"{count(spec['one_token_an_iteration'], 'answer')} of {count(spec['requests'], 'request')} tell one token "
            "an iteration (avg_decoded_tokens_per_iter), and so does a server that drafts and has nothing accepted; "
            "only counters (trtllm_spec_decode_*, since TensorRT-LLM 1.3.0rc19) tell the two apart"
        )
    elif spec["drafted"] is None:
        found.append(
            "nothing shows that the speculative arm drafted: no counters at /metrics, none in its answers, "
            "none in its log"
        )
    elif not spec["drafted"]:
        found.append(
            f"the speculative arm did not draft: its counters (source: {spec['source'] or 'answers'}) "
            f"did not move over {count(spec['requests'], 'request')}"
        )
    return found


# --- what makes a pair invalid ----------------------------------------------------------------------


def _schema(results: Mapping[str, Result]) -> list[str]:
    return [
        f"{arm} has the schema {result.get('schema')!r}, and this program reads {RESULT_SCHEMA!r}"
        for arm, result in results.items()
        if result.get("schema") != RESULT_SCHEMA
    ]


def _broken(results: Mapping[str, Result]) -> list[str]:
    """Return a sentence for each way in which an arm's answers were not whole, as its requests say."""
    found: list[str] = []
    for arm, result in results.items():
        requests = _requests(result)
        if not requests:
            found.append(f"{arm} has no requests")
        for status, words in BROKEN.items():
            hits = [r for r in requests if r.get("status") == status]
            told = result.get(status)
            if hits:
                first = hits[0]
                why = f": {str(first['error'])[:160]}" if first.get("error") else ""
                found.append(
                    f"{arm}: {len(hits)} of {count(len(requests), 'request')} {words} "
                    f"(first {first.get('prompt_id')}, round {first.get('round')}{why})"
                )
            elif isinstance(told, int) and told > 0:
                found.append(f"{arm}: its summary counts {count(told, 'request')} {words}, its requests show none")
        strange = sorted({str(r.get("status")) for r in requests} - {"ok", *BROKEN})
        if strange:
            found.append(f"{arm}: requests with the unknown status {listing(strange)}")
    return found


def _missing(
    results: Mapping[str, Result],
    experiment: Mapping[str, Any],
    declared: Sequence[str],
    present: Sequence[str],
) -> list[str]:
    """Return where a request of one arm has no partner in the other, or no TPOT to compare."""
    found: list[str] = []
    measured = {
        str(r.get("kind")) for result in results.values() for r in _requests(result) if str(r.get("group")) in declared
    }
    absent = [str(kind) for kind in experiment.get("kinds") or [] if str(kind) not in measured]
    if absent:
        found.append(
            f"the profile declares {listing(absent)}, and the results have only {listing(list(present)) or 'nothing'}"
        )
    keys: dict[str, list[Pair]] = {
        arm: [(r.get("round"), r.get("group"), r.get("prompt_id")) for r in _requests(result)]
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
            found.append(f"{arm}: {count(len(seen) - len(set(seen)), 'request')} with the round and prompt of another")
        short = [
            str(r.get("prompt_id"))
            for r in _requests(results[arm])
            if r.get("status") == "ok" and str(r.get("group")) in declared and measured_tpot(r) is None
        ]
        if short:
            found.append(
                f"{arm}: {count(len(short), 'answer')} without a TPOT (first {short[0]}): "
                "one token, or all in one chunk"
            )
    return found


# --- in words ---------------------------------------------------------------------------------------


def _bound(speedup: Mapping[str, Any]) -> str:
    """Return the lower bound with enough digits to stand on one side of the threshold."""
    low = float(speedup["low"])
    digits = next((d for d in (2, 3, 4, 5) if round(low, d) != THRESHOLD), 6)
    return times(low, digits)


def _why(
    word: str,
    speedup: Mapping[str, Any] | None,
    control: Mapping[str, Any] | None,
    nothing_drafted: bool,
    declared: Sequence[str],
) -> list[str]:
    if speedup is None:
        return ["no prompt was measured in both arms"]
    side = "above" if word == PAYS else "not above"
    reasons = [
        f"the lower {PERCENT} bound of the median speed-up over {count(speedup['n'], 'prompt')} is "
        f"{_bound(speedup)}, {side} {times(THRESHOLD)}"
    ]
    if nothing_drafted:
        reasons.append(f"the drafter proposed nothing on {listing(declared)}")
    if control:
        reasons.append(f"the baseline against itself, one round over the next, gives {times_span(control)}")
    return reasons


def _said(
    word: str,
    speedup: Mapping[str, Any] | None,
    kinds: Sequence[str],
    concurrency: object,
    reasons: Sequence[str],
) -> str:
    if word == INVALID or speedup is None:
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


def busy_processes(machine: Mapping[str, Any]) -> list[str]:
    """Return the names of the processes, not ours, that were busy while an arm was measured."""
    groups = machine.get("groups") or []
    names = [one.get("name") for group in groups for one in (group.get("between") or {}).get("busy_processes") or []]
    return list(dict.fromkeys(str(name) for name in names))


def _company(results: Mapping[str, Result]) -> list[str]:
    """Return where something else used the machine while an arm was measured."""
    found: list[str] = []
    for arm, result in results.items():
        machine = result.get("machine") or {}
        between = [group.get("between") or {} for group in machine.get("groups") or []]
        others = [o for one in between if isinstance(o := one.get("other_cpu_percent"), int | float)]
        if others and median(others) > OTHER_CPU_PERCENT:
            names = busy_processes(machine)
            found.append(
                f"{arm}: other work took {median(others):.0f} % of the machine's CPU while it was measured "
                "(median)" + (f": {listing(names[:5])}" if names else "")
            )
    return found


def _warnings(
    word: str,
    figures: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Result],
    resolved: Mapping[str, Any],
    declared: Sequence[str],
) -> list[str]:
    found: list[str] = []
    found += [f"{mark} profile: {resolved[mark]}" for mark in MARKS if resolved.get(mark)]
    told = tuple(f"{mark}:" for mark in MARKS)
    found += [str(warning) for warning in resolved.get("warnings") or [] if not str(warning).startswith(told)]
    control = figures["control"]
    if control is None:
        found.append("no A/A control: the baseline ran one round, so its own drift is unknown")
    elif control["low"] > THRESHOLD or control["high"] < 1 / THRESHOLD:
        found.append(
            f"the box was not steady: the baseline against itself gives {times_span(control)}, more than the "
            "3 % that the verdict looks for"
        )
    if word == PAYS and control and figures["speedup"]["low"] <= max(control["high"], 1 / control["low"]):
        found.append("the speed-up's lower bound is within what the baseline differs from itself")
    found += _company(results)
    repeated = sorted({str(r.get("kind")) for r in _requests(results["baseline"]) if "#" in str(r.get("prompt_id"))})
    if repeated:
        found.append(
            f"{listing(repeated)} repeats one prompt: its interval is about that prompt only, and a drafter "
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
