"""The result of one arm: steps put together, with the field names and definitions of `vllm bench serve`.

Formulas are those of `vllm/benchmarks/serve.py`: means, medians, population standard deviations and the
99th percentile by linear interpolation (numpy's default) over requests, for ITL over all gaps of all
requests; throughput = tokens / duration. Only requests with status "ok" enter them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from statistics import fmean
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from ..core.format import count
from ..core.step_clock import begun_s
from ..core.table import aligned
from .gpu_text import gpu_lines, gpu_trouble
from .outcome import CUT_OFF, EMPTY, FAILED, NO_USAGE, OK
from .output_scoring import scored_rows, scoring_of
from .power import power_of
from .result_types import ACCEPTANCE_SOURCES
from .samples import LEAST_PIECES, disturbances, measured_tpot, throttled
from .spec_metrics import acceptance, acceptance_from_log, acceptance_from_requests, difference, total
from .usage_check import of_result

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GroupMachine
    from drafthouse.bench.outcome import NotWell
    from drafthouse.bench.result_types import (
        Acceptance,
        ArmExtras,
        ArmResult,
        CounterPair,
        CounterReading,
        Counts,
        EngineSeen,
        GpuSpan,
        Head,
        Latencies,
        Measured,
        Numbers,
        Power,
        PowerMeter,
        PowerSpan,
        Reasoning,
        Request,
        Span,
        StepResult,
        WarmUp,
    )

    _OfGroup = TypeVar("_OfGroup", Request, Span, CounterReading, PowerSpan)

SCHEMA = "drafthouse.result/1"

#: Every way not to end well, with the words a person reads.
_NOT_WELL: dict[NotWell, str] = {FAILED: "failed", CUT_OFF: "cut off", EMPTY: "empty", NO_USAGE: "without usage"}
_NAMES: dict[str, Literal["ttft_ms", "ttfat_ms", "tpot_ms", "e2el_ms"]] = {
    "ttft": "ttft_ms",
    "ttfat": "ttfat_ms",
    "tpot": "tpot_ms",
    "e2el": "e2el_ms",
}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The percentile by linear interpolation between the two nearest values; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float], name: str) -> dict[str, float | None]:
    """Mean, median, population standard deviation and p99 as `mean_<name>_ms` and so on."""
    mean = math.fsum(values) / len(values) if values else None
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) if mean is not None else None
    return {
        f"mean_{name}_ms": mean,
        f"median_{name}_ms": percentile(values, 50),
        f"std_{name}_ms": std,
        f"p99_{name}_ms": percentile(values, 99),
    }


def assemble(
    steps: Sequence[StepResult],
    arm: str,
    *,
    profile: str | None = None,
    key: str | None = None,
    engine: EngineSeen | None = None,
    log: str | None = None,
    more: ArmExtras | None = None,
) -> ArmResult:
    """The result of ``arm`` from its steps, in the order they were measured.

    ``engine`` is what is known of the engine ({id, version, ...}), ``log`` the text of its log while it
    was measured: the last source for acceptance, where neither counters nor answers tell it. ``more`` is kept with it.
    Raises ValueError when no step measured this arm.
    """
    parts = [step for step in steps if arm in step["arms"]]
    if not parts:
        raise ValueError(f"no step measured the arm {arm!r}")
    zero, begun = parts[0]["started_unix_s"], begun_s(parts)
    requests: list[Request] = []
    spans: list[Span] = []
    counters: list[CounterReading] = []
    power: list[PowerSpan] = []
    gpus: list[GpuSpan] = []
    warmups: list[WarmUp] = []
    machine: list[GroupMachine] = []
    suites: dict[str, None] = {}
    notes: list[str] = []
    for step in parts:
        later_s = begun(step) - begun(parts[0])
        measured = step["arms"][arm]
        requests += [{**one, "started_s": round(one["started_s"] + later_s, 6)} for one in measured["requests"]]
        spans += measured["spans"]
        counters += measured["counters"]
        power += measured.get("power", [])
        gpus += measured.get("gpus", [])
        warmups.append(measured["warmup"])
        machine += step["machine"]["groups"]
        suites |= dict.fromkeys(step["suites"])
        notes += map(str, step.get("notes") or [])
    meter = parts[-1].get("power_meter")
    settings = parts[0]["settings"]
    head: Head = {
        "date": datetime.fromtimestamp(zero, timezone.utc).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat",
        "model_id": parts[0]["arms"][arm]["model_id"],
        "request_rate": "inf",
        "max_concurrency": settings["concurrency"],
    }
    groups: dict[str, Numbers] = {}
    for name in dict.fromkeys(str(span["group"]) for span in spans):
        in_group = _in_group(requests, name)
        groups[name] = {
            **head,
            **_numbers(in_group, _in_group(spans, name), _in_group(counters, name), None),
            "power": _power(_in_group(power, name), meter, in_group),
        }
    return {
        "schema": SCHEMA,
        "arm": arm,
        "profile": profile,
        "key": key,
        **head,
        **_numbers(requests, spans, counters, log),
        "power": _power(power, meter, requests),
        "reasoning": _reasoning(requests),
        "rounds": len({span["round"] for span in spans}),
        "groups": groups,
        "engine": engine or {},
        "settings": settings,
        "suites": list(suites),
        "incomplete": any(step.get("incomplete") for step in parts),
        "notes": notes,
        "warmup": warmups,
        "tokenizer": parts[-1]["arms"][arm].get("tokenizer"),
        "counters": counters,
        "scored": scored_rows(steps, arm),
        "scoring": scoring_of(steps),
        "machine": {
            "before": parts[0]["machine"]["before"],
            "after": parts[-1]["machine"]["after"],
            "groups": machine,
        },
        "gpus": gpus,
        "requests": requests,
        **(more or {}),
    }


def _in_group(measured: Sequence[_OfGroup], name: str) -> list[_OfGroup]:
    return [part for part in measured if part["group"] == name]


def _power(spans: Sequence[PowerSpan], meter: PowerMeter | None, requests: Sequence[Request]) -> Power:
    return power_of([part["span"] for part in spans], meter, _output_tokens(requests))


def _numbers(
    requests: Sequence[Request],
    spans: Sequence[Span],
    counters: Sequence[CounterReading],
    log: str | None,
) -> Measured:
    """The counts, speeds and acceptance of some requests."""
    ended = Counter(request["status"] for request in requests)
    good = [request for request in requests if request["status"] == OK]
    duration = math.fsum(span["duration_s"] for span in spans)
    tokens_in = sum(request["input_tokens"] or 0 for request in good)
    tokens_out = _output_tokens(requests)
    cached = sum(request["cached_tokens"] or 0 for request in good)
    throttled = sum(bool(request.get("throttled")) for request in requests)
    # One that was asked for as a whole came in no pieces at all.
    without_tpot = sum(measured_tpot(request) is None and request["chunks"] != 0 for request in good)
    request_throughput = output_throughput = total_throughput = None
    if duration:
        request_throughput = len(good) / duration
        output_throughput = tokens_out / duration
        total_throughput = (tokens_in + tokens_out) / duration
    return {
        "num_prompts": len(requests),
        "duration": duration,
        "completed": len(good),
        "failed": ended[FAILED],
        "cut_off": ended[CUT_OFF],
        "empty": ended[EMPTY],
        "no_usage": ended[NO_USAGE],
        "without_tpot": without_tpot,
        "throttled": throttled,
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "total_cached_tokens": cached,
        "request_throughput": request_throughput,
        "output_throughput": output_throughput,
        "total_token_throughput": total_throughput,
        **_latencies(good),
        **acceptance_of(requests, counters, log),
    }


def _output_tokens(requests: Iterable[Request]) -> int:
    """The output tokens of the whole answers."""
    return sum(request["output_tokens"] or 0 for request in requests if request["status"] == OK)


def _latencies(good: Sequence[Request]) -> Latencies:
    found: dict[str, float | None] = {}
    for name, field in _NAMES.items():
        told = [measured_tpot(request) if name == "tpot" else request[field] for request in good]
        found |= spread([value for value in told if value is not None], name)
    found |= spread([gap for request in good for gap in request["itls_ms"]], "itl")
    return cast("Latencies", found)


def _reasoning(requests: Sequence[Request]) -> Reasoning:
    """How many of the whole answers began with reasoning: a model that thinks is another task."""
    good = [request for request in requests if request["status"] == OK]
    return {"answers": sum(bool(request.get("reasoning_text")) for request in good), "of": len(good)}


def acceptance_of(requests: Sequence[Request], counters: Sequence[CounterPair], log: str | None) -> Acceptance:
    """Acceptance from the first source that tells it for all of the requests."""
    deltas = [difference(one["before"], one["after"]) for one in counters]
    known = [delta for delta in deltas if delta is not None]
    if known and len(known) == len(deltas):
        counted = acceptance("metrics", total(known))
        drafted = counted["spec_decode_draft_tokens"] or counted["spec_decode_num_drafts"]
        if drafted and (told := acceptance_from_requests(requests)):
            # Counters without the number of drafts (TensorRT-LLM's per iteration) or of drafted tokens (SGLang's): the
            # answers may know the length or the rate.
            counted |= {key: value for key, value in told.items() if counted.get(key) is None}  # type: ignore[typeddict-item]
        gauges = [length for one in counters if (length := one["after"].get("length"))]
        if drafted is None and counted["spec_decode_acceptance_length"] is None and gauges:
            return {**counted, "spec_decode_acceptance_length": fmean(gauges), "spec_decode_source": "gauge"}
        return counted
    unknown: Counts = {"num_drafts": None, "draft_tokens": None, "accepted_tokens": None, "per_position": []}
    return acceptance_from_requests(requests) or acceptance_from_log(log or "") or acceptance(None, unknown)


def not_well(result: ArmResult) -> int:
    """How many requests of a result did not end well."""
    return sum(result[status] for status in _NOT_WELL)


def summary_lines(result: ArmResult) -> list[str]:
    """The result as lines for a terminal: what went wrong first, then a row a group."""
    lines = _disturbed_lines(result) + _trouble_lines(result)
    lines += [
        f"{result['model_id']}: {count(result['completed'], 'request')} measured, "
        f"{result['max_concurrency']} at a time, {result['duration']:.1f} s",
        "",
    ]
    rows = [_row(name, group) for name, group in result["groups"].items()]
    if len(rows) != 1:
        rows.append(_row("all", result))
    head = (
        "kind",
        "requests",
        "tok/s",
        "TTFT ms",
        "p99",
        "TPOT ms",
        "p99",
        "ITL ms",
        "E2E ms",
        "accepted",
        "length",
    )
    lines += [
        *aligned([head, *rows]),
        "",
        "tok/s is output tokens over the time of the requests; TTFT, TPOT, ITL and E2E are medians.",
        _source_line(result),
    ]
    lines += _without_tpot_lines(result)
    lines += [f"Throttled: {said}." for said in throttled({result["arm"]: result})]
    lines += [*_power_lines(result), *gpu_lines(result)]
    lines += [f"Throttled: {said}." for said in gpu_trouble({result["arm"]: result})]
    if cached := result["total_cached_tokens"]:
        share = 100 * cached / result["total_input_tokens"]
        lines.append(f"{share:.0f} % of the input tokens came from the engine's prefix cache, which shortens TTFT.")
    return lines


def _power_lines(result: ArmResult) -> list[str]:
    """What was used of power, where it could be read."""
    power = result.get("power")
    if not power or (joules := power.get("j_per_output_token")) is None:
        return []
    idle = f", {_show(power['idle_w'])} W idle" if power["idle_w"] is not None else ""
    each = f"{_show(joules)} J for each output token"
    return [f"Power: {_show(power['mean_w'])} W while answering{idle}; {each} ({power['source']})."]


def _without_tpot_lines(result: ArmResult) -> list[str]:
    """How many whole answers have no time per token, and are in none of its figures."""
    number = result.get("without_tpot")
    if not number:
        return []
    return [
        f"{number} of {count(result['completed'], 'answer')} had no TPOT: one token, or fewer than "
        f"{LEAST_PIECES} chunks (a proxy that buffers the stream?)."
    ]


def _disturbed_lines(result: ArmResult) -> list[str]:
    """What a person must know before any number: it is not all there, or not the server's alone."""
    lines = ["Incomplete: the run was stopped early."] if result.get("incomplete") else []
    lines += [f"Polluted: {group}, round {number}: {said}." for group, number, said in disturbances(result)]
    # Not averaged away: tokens are what every speed below is made of.
    lines += [f"Miscounted: {said}." for said in of_result(result)]
    return [*lines, ""] if lines else []


def _trouble_lines(result: ArmResult) -> list[str]:
    if not not_well(result):
        return []
    counts = ", ".join(f"{result[status]} {words}" for status, words in _NOT_WELL.items() if result[status])
    lines = [f"{not_well(result)} of {result['num_prompts']} requests did not succeed: {counts}."]
    first: dict[NotWell, str] = {}
    for request in result["requests"]:
        if request["status"] != OK:
            first.setdefault(request["status"], f"{request['prompt_id']}: {request['error']}")
    lines += [f"  first {_NOT_WELL[status]}: {text}" for status, text in first.items()]
    return [*lines, "They are not included in the numbers below.", ""]


def _row(name: str, numbers: Numbers) -> tuple[str, ...]:
    rate, length = numbers["spec_decode_acceptance_rate"], numbers["spec_decode_acceptance_length"]
    return (
        name,
        f"{numbers['completed']}/{numbers['num_prompts']}",
        _show(numbers["output_throughput"]),
        _show(numbers["median_ttft_ms"]),
        _show(numbers["p99_ttft_ms"]),
        _show(numbers["median_tpot_ms"]),
        _show(numbers["p99_tpot_ms"]),
        _show(numbers["median_itl_ms"]),
        _show(numbers["median_e2el_ms"]),
        f"{rate:.1f} %" if rate is not None else "-",
        _show(length),
    )


def _source_line(result: ArmResult) -> str:
    if result["spec_decode_source"] is None:
        return "Speculation: the server reports nothing about it."
    source = ACCEPTANCE_SOURCES[result["spec_decode_source"]]
    drafted = result["spec_decode_draft_tokens"]
    if drafted == 0:
        return f"Speculation: nothing was drafted, according to {source}."
    if drafted is None and result["spec_decode_acceptance_length"] == 1.0:
        return f"Speculation: one token per step, according to {source}: no draft tokens, or none accepted."
    return f"Speculation: accepted = share of the draft tokens, length = tokens per step; from {source}."


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.1f}"
