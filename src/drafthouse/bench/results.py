"""The result of one arm: steps put together, with the field names and definitions of `vllm bench serve`.

Formulas are those of `vllm/benchmarks/serve.py`: means, medians, population standard deviations and the
99th percentile by linear interpolation (numpy's default) over requests, for ITL over all gaps of all
requests; throughput = tokens / duration. Only requests with status "ok" enter them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
        StepArm,
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
    mean = std = None
    if values:
        mean = math.fsum(values) / len(values)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return {
        f"mean_{name}_ms": mean,
        f"median_{name}_ms": percentile(values, 50),
        f"std_{name}_ms": std,
        f"p99_{name}_ms": percentile(values, 99),
    }


@dataclass
class _Measurements:
    """What the steps of an arm measured, in their order."""

    requests: list[Request] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    counters: list[CounterReading] = field(default_factory=list)
    power: list[PowerSpan] = field(default_factory=list)
    gpus: list[GpuSpan] = field(default_factory=list)
    warmups: list[WarmUp] = field(default_factory=list)

    def add(self, measured: StepArm, later_s: float) -> None:
        """Add a step that began ``later_s`` seconds after the first one."""
        for request in measured["requests"]:
            self.requests.append({**request, "started_s": round(request["started_s"] + later_s, 6)})
        self.spans += measured["spans"]
        self.counters += measured["counters"]
        self.power += measured.get("power", [])
        self.gpus += measured.get("gpus", [])
        self.warmups.append(measured["warmup"])

    def of_group(self, name: str) -> _Measurements:
        """The measurements of one group, as far as its numbers need them."""
        return _Measurements(
            requests=_in_group(self.requests, name),
            spans=_in_group(self.spans, name),
            counters=_in_group(self.counters, name),
            power=_in_group(self.power, name),
        )

    def power_used(self, meter: PowerMeter | None) -> Power:
        """The energy and the power of the answers; ``meter`` is what the result says of the meter."""
        return power_of([part["span"] for part in self.power], meter, _output_tokens(self.requests))


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
    first, last, begun = parts[0], parts[-1], begun_s(parts)
    measured = _Measurements()
    machine: list[GroupMachine] = []
    suites: dict[str, None] = {}
    notes: list[str] = []
    for step in parts:
        measured.add(step["arms"][arm], begun(step) - begun(first))
        machine += step["machine"]["groups"]
        suites |= dict.fromkeys(step["suites"])
        notes += map(str, step.get("notes") or [])
    meter, head = last.get("power_meter"), _head(first, arm)
    return {
        "schema": SCHEMA,
        "arm": arm,
        "profile": profile,
        "key": key,
        **head,
        **_numbers(measured, log),
        "power": measured.power_used(meter),
        "reasoning": _reasoning(measured.requests),
        "rounds": len({span["round"] for span in measured.spans}),
        "groups": _groups(measured, head, meter),
        "engine": engine or {},
        "settings": first["settings"],
        "suites": list(suites),
        "incomplete": any(step.get("incomplete") for step in parts),
        "notes": notes,
        "warmup": measured.warmups,
        "tokenizer": last["arms"][arm].get("tokenizer"),
        "counters": measured.counters,
        "scored": scored_rows(steps, arm),
        "scoring": scoring_of(steps),
        "machine": {"before": first["machine"]["before"], "after": last["machine"]["after"], "groups": machine},
        "gpus": measured.gpus,
        "requests": measured.requests,
        **(more or {}),
    }


def _head(step: StepResult, arm: str) -> Head:
    """What `vllm bench serve` writes at the head of its results, of an arm whose first step this is."""
    return {
        "date": datetime.fromtimestamp(step["started_unix_s"], timezone.utc).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat",
        "model_id": step["arms"][arm]["model_id"],
        "request_rate": "inf",
        "max_concurrency": step["settings"]["concurrency"],
    }


def _groups(measured: _Measurements, head: Head, meter: PowerMeter | None) -> dict[str, Numbers]:
    """The numbers of each group, by its name."""
    groups: dict[str, Numbers] = {}
    for name in dict.fromkeys(str(span["group"]) for span in measured.spans):
        of_group = measured.of_group(name)
        groups[name] = {**head, **_numbers(of_group, None), "power": of_group.power_used(meter)}
    return groups


def _in_group(measured: Sequence[_OfGroup], name: str) -> list[_OfGroup]:
    return [part for part in measured if part["group"] == name]


def _numbers(measured: _Measurements, log: str | None) -> Measured:
    """The counts, speeds and acceptance of some requests."""
    requests = measured.requests
    ended = Counter(request["status"] for request in requests)
    good = _whole_answers(requests)
    duration = math.fsum(span["duration_s"] for span in measured.spans)
    tokens_in = cached = without_tpot = throttled = 0
    for request in good:
        tokens_in += request["input_tokens"] or 0
        cached += request["cached_tokens"] or 0
        # One that was asked for as a whole came in no pieces at all.
        without_tpot += measured_tpot(request) is None and request["chunks"] != 0
    for request in requests:
        throttled += bool(request.get("throttled"))
    tokens_out = _output_tokens(requests)
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
        **acceptance_of(requests, measured.counters, log),
    }


def _whole_answers(requests: Iterable[Request]) -> list[Request]:
    return [request for request in requests if request["status"] == OK]


def _output_tokens(requests: Iterable[Request]) -> int:
    """The output tokens of the whole answers."""
    return sum(request["output_tokens"] or 0 for request in _whole_answers(requests))


def _latencies(good: Sequence[Request]) -> Latencies:
    found: dict[str, float | None] = {}
    for name, field_name in _NAMES.items():
        values = []
        for request in good:
            value = measured_tpot(request) if name == "tpot" else request[field_name]
            if value is not None:
                values.append(value)
        found |= spread(values, name)
    gaps: list[float] = []
    for request in good:
        gaps += request["itls_ms"]
    found |= spread(gaps, "itl")
    return cast("Latencies", found)


def _reasoning(requests: Sequence[Request]) -> Reasoning:
    """How many of the whole answers began with reasoning: a model that thinks is another task."""
    good = _whole_answers(requests)
    return {"answers": sum(bool(request.get("reasoning_text")) for request in good), "of": len(good)}


def acceptance_of(requests: Sequence[Request], counters: Sequence[CounterPair], log: str | None) -> Acceptance:
    """Acceptance from the first source that tells it for all of the requests."""
    known: list[Counts] = []
    gauges: list[float] = []
    for reading in counters:
        moved = difference(reading["before"], reading["after"])
        if moved is not None:
            known.append(moved)
        if length := reading["after"].get("length"):
            gauges.append(length)
    if not known or len(known) < len(counters):
        unknown: Counts = {"num_drafts": None, "draft_tokens": None, "accepted_tokens": None, "per_position": []}
        return acceptance_from_requests(requests) or acceptance_from_log(log or "") or acceptance(None, unknown)
    counted = acceptance("metrics", total(known))
    drafted = counted["spec_decode_draft_tokens"] or counted["spec_decode_num_drafts"]
    if drafted and (of_answers := acceptance_from_requests(requests)):
        # Counters without the number of drafts (TensorRT-LLM's per iteration) or of drafted tokens (SGLang's): the
        # answers may know the length or the rate.
        counted |= {key: value for key, value in of_answers.items() if counted.get(key) is None}  # type: ignore[typeddict-item]
    if drafted is None and counted["spec_decode_acceptance_length"] is None and gauges:
        return {**counted, "spec_decode_acceptance_length": fmean(gauges), "spec_decode_source": "gauge"}
    return counted


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
    by_arm = {result["arm"]: result}
    lines += map("Throttled: {}.".format, throttled(by_arm))
    lines += [*_power_lines(result), *gpu_lines(result)]
    lines += map("Throttled: {}.".format, gpu_trouble(by_arm))
    if cached := result["total_cached_tokens"]:
        share = 100 * cached / result["total_input_tokens"]
        lines.append(f"{share:.0f} % of the input tokens came from the engine's prefix cache, which shortens TTFT.")
    return lines


def _power_lines(result: ArmResult) -> list[str]:
    """What was used of power, where it could be read."""
    power = result.get("power")
    if not power or (joules := power.get("j_per_output_token")) is None:
        return []
    idle = ""
    if power["idle_w"] is not None:
        idle = f", {_show(power['idle_w'])} W idle"
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
    lines = []
    if result.get("incomplete"):
        lines.append("Incomplete: the run was stopped early.")
    for group, number, sentence in disturbances(result):
        lines.append(f"Polluted: {group}, round {number}: {sentence}.")
    # Not averaged away: tokens are what every speed below is made of.
    lines += map("Miscounted: {}.".format, of_result(result))
    if lines:
        lines.append("")
    return lines


def _trouble_lines(result: ArmResult) -> list[str]:
    if not not_well(result):
        return []
    counts = [f"{result[status]} {words}" for status, words in _NOT_WELL.items() if result[status]]
    lines = [f"{not_well(result)} of {result['num_prompts']} requests did not succeed: {', '.join(counts)}."]
    first: dict[NotWell, str] = {}
    for request in result["requests"]:
        if request["status"] != OK:
            first.setdefault(request["status"], f"{request['prompt_id']}: {request['error']}")
    for status, text in first.items():
        lines.append(f"  first {_NOT_WELL[status]}: {text}")
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
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"
