"""Assemble an arm's result from its steps, with the field names and formulfrom `vllm bench serve`.

An arm is one of the compared servers, baseline or speculative. As in `vllm/benchmarks/serve.py`, statistics are
means, medians, population standard deviations and the 99th percentile by linear interpolation (numpy's default)
over requests, for ITL over all gaps of all requests; throughput = tokens / duration. Only status "ok" counts.
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
from .gpu_text import gpu_lines, gpu_warnings
from .outcome import CUT_OFF, EMPTY, FAILED, NO_USAGE, OK
from .output_scoring import scored_rows, scoring_of
from .power import power_of
from .result_types import ACCEPTANCE_SOURCES
from .samples import LEAST_PIECES, disturbances, measured_tpot, rate_limit_sentences
from .spec_metrics import acceptance, acceptance_from_log, acceptance_from_requests, difference, total
from .sse import DRAFT_COUNTS
from .usage_check import arm_contradictions

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GroupMachine
    from drafthouse.bench.outcome import NotOk
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

#: The statuses other than "ok", with the words for people.
_NOT_OK: dict[NotOk, str] = {FAILED: "failed", CUT_OFF: "cut off", EMPTY: "empty", NO_USAGE: "without usage"}
_LATENCY_KEYS: dict[str, Literal["ttft_ms", "ttfat_ms", "tpot_ms", "e2el_ms"]] = {
    "ttft": "ttft_ms",
    "ttfat": "ttfat_ms",
    "tpot": "tpot_ms",
    "e2el": "e2el_ms",
}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The percentile by linear interpolation between the two nearest values; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    lower = math.floor(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def spread(values: Sequence[float], name: str) -> dict[str, float | None]:
    """Mean, median, population standard deviation and p99, under `mean_<name>_ms` and so on; None without values."""
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
    """The measurements of an arm, concatenated over its steps in their order."""

    requests: list[Request] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    counters: list[CounterReading] = field(default_factory=list)
    power: list[PowerSpan] = field(default_factory=list)
    gpus: list[GpuSpan] = field(default_factory=list)
    warmups: list[WarmUp] = field(default_factory=list)

    def add(self, measured: StepArm, later_s: float) -> None:
        """Append a step that began ``later_s`` seconds after the first one."""
        for request in measured["requests"]:
            self.requests.append({**request, "started_s": round(request["started_s"] + later_s, 6)})
        self.spans += measured["spans"]
        self.counters += measured["counters"]
        self.power += measured.get("power", [])
        self.gpus += measured.get("gpus", [])
        self.warmups.append(measured["warmup"])

    def of_group(self, name: str) -> _Measurements:
        """The measurements of one group, without GPU spans and warm-ups, which its numbers do not need."""
        return _Measurements(
            requests=_in_group(self.requests, name),
            spans=_in_group(self.spans, name),
            counters=_in_group(self.counters, name),
            power=_in_group(self.power, name),
        )

    def power_used(self, meter: PowerMeter | None) -> Power:
        """The energy and power used while requests were answered; ``meter`` describes the power meter."""
        return power_of([part["span"] for part in self.power], meter, _output_tokens(self.requests))


def assemble(
    steps: Sequence[StepResult],
    arm: str,
    *,
    profile: str | None = None,
    key: str | None = None,
    engine: EngineSeen | None = None,
    log: str | None = None,
    extra_keys: ArmExtras | None = None,
) -> ArmResult:
    """The result of ``arm`` from its steps, which are in the order of measurement.

    ``profile`` is the name of the measured profile, ``key`` a hash of it and the machine. ``engine`` describes the
    engine. ``log`` is the engine's log during the measurement, from which acceptance is read if neither counters nor
    answers have it. ``extra_keys`` are further keys of the result. Raises ValueError if no step measured this arm.
    """
    arm_steps = [step for step in steps if arm in step["arms"]]
    if not arm_steps:
        raise ValueError(f"no step measured the arm {arm!r}")
    # The last step tells whether meter and tokenizer worked to the end; the first one has the run's date and settings.
    first, last = arm_steps[0], arm_steps[-1]
    begun = begun_s(arm_steps)
    measured = _Measurements()
    machine: list[GroupMachine] = []
    suites: dict[str, None] = {}
    notes: list[str] = []
    for step in arm_steps:
        measured.add(step["arms"][arm], begun(step) - begun(first))
        machine += step["machine"]["groups"]
        suites |= dict.fromkeys(step["suites"])
        notes += map(str, step.get("notes") or [])
    meter = last.get("power_meter")
    head = _head(first, arm)
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
        "incomplete": any(step.get("incomplete") for step in arm_steps),
        "notes": notes,
        "warmup": measured.warmups,
        "tokenizer": last["arms"][arm].get("tokenizer"),
        "counters": measured.counters,
        "scored": scored_rows(steps, arm),
        "scoring": scoring_of(steps),
        "machine": {"before": first["machine"]["before"], "after": last["machine"]["after"], "groups": machine},
        "gpus": measured.gpus,
        "requests": measured.requests,
        **(extra_keys or {}),
    }


def _head(step: StepResult, arm: str) -> Head:
    """The keys that `vllm bench serve` writes before its numbers; ``step`` is the arm's first one.

    "inf" is vLLM's rate for requests that wait for no clock.
    """
    return {
        "date": datetime.fromtimestamp(step["started_unix_s"], timezone.utc).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat",
        "model_id": step["arms"][arm]["model_id"],
        "request_rate": "inf",
        "max_concurrency": step["settings"]["concurrency"],
    }


def _groups(measured: _Measurements, head: Head, meter: PowerMeter | None) -> dict[str, Numbers]:
    """The numbers of each group, by the group's name."""
    groups: dict[str, Numbers] = {}
    for name in dict.fromkeys(str(span["group"]) for span in measured.spans):
        group_measured = measured.of_group(name)
        groups[name] = {**head, **_numbers(group_measured, log=None), "power": group_measured.power_used(meter)}
    return groups


def _in_group(measured: Sequence[_OfGroup], name: str) -> list[_OfGroup]:
    return [part for part in measured if part["group"] == name]


def _numbers(measured: _Measurements, log: str | None) -> Measured:
    """The counts, speeds, latencies and acceptance of the measured requests; ``log`` as in `assemble`."""
    requests = measured.requests
    by_status = Counter(request["status"] for request in requests)
    complete = _whole_answers(requests)
    duration = math.fsum(span["duration_s"] for span in measured.spans)
    tokens_in = cached = without_tpot = rate_limited = 0
    for request in complete:
        tokens_in += request["input_tokens"] or 0
        cached += request["cached_tokens"] or 0
        # An answer that was not streamed has 0 chunks, and no TPOT by design.
        without_tpot += measured_tpot(request) is None and request["chunks"] != 0
    for request in requests:
        rate_limited += bool(request.get("throttled"))
    tokens_out = _output_tokens(requests)
    request_throughput = output_throughput = total_throughput = None
    if duration:
        request_throughput = len(complete) / duration
        output_throughput = tokens_out / duration
        total_throughput = (tokens_in + tokens_out) / duration
    return {
        "num_prompts": len(requests),
        "duration": duration,
        "completed": len(complete),
        "failed": by_status[FAILED],
        "cut_off": by_status[CUT_OFF],
        "empty": by_status[EMPTY],
        "no_usage": by_status[NO_USAGE],
        "without_tpot": without_tpot,
        "throttled": rate_limited,
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "total_cached_tokens": cached,
        "request_throughput": request_throughput,
        "output_throughput": output_throughput,
        "total_token_throughput": total_throughput,
        **_latencies(complete),
        **acceptance_of(requests, measured.counters, log),
    }


def _whole_answers(requests: Iterable[Request]) -> list[Request]:
    return [request for request in requests if request["status"] == OK]


def _output_tokens(requests: Iterable[Request]) -> int:
    """The sum of the output tokens of all complete answers."""
    return sum(request["output_tokens"] or 0 for request in _whole_answers(requests))


def _latencies(complete: Sequence[Request]) -> Latencies:
    """The statistics of each latency over the complete answers that have it."""
    latencies: dict[str, float | None] = {}
    for name, field_name in _LATENCY_KEYS.items():
        values = []
        for request in complete:
            value = measured_tpot(request) if name == "tpot" else request[field_name]
            if value is not None:
                values.append(value)
        latencies |= spread(values, name)
    gaps: list[float] = []
    for request in complete:
        gaps += request["itls_ms"]
    latencies |= spread(gaps, "itl")
    return cast("Latencies", latencies)


def _reasoning(requests: Sequence[Request]) -> Reasoning:
    """The number of complete answers with reasoning. Arms that differ in it are not comparable."""
    complete = _whole_answers(requests)
    return {"answers": sum(bool(request.get("reasoning_text")) for request in complete), "of": len(complete)}


def acceptance_of(requests: Sequence[Request], counters: Sequence[CounterPair], log: str | None) -> Acceptance:
    """Acceptance from the first of these sources that has it.

    - the answers, if one of them counts its own drafts: other clients' requests cannot change these counts
    - the engine's counters, if both readings of every pair exist; what they lack is taken from the answers
    - the answers, if they have only other figures
    - the engine's ``log``, None: there is none

    If the counters show no drafts and no length, an engine's gauge of the length replaces them.
    """
    from_answers = acceptance_from_requests(requests)
    if from_answers and any(map(_counts_its_drafts, _whole_answers(requests))):
        return from_answers  # where one answer has counts, an answer without them drafted nothing
    increases: list[Counts] = []
    gauges: list[float] = []  # mean acceptance lengths, of an engine without counters
    for reading in counters:
        increase = difference(reading["before"], reading["after"])
        if increase is not None:
            increases.append(increase)
        if length := reading["after"].get("length"):
            gauges.append(length)
    if not increases or len(increases) < len(counters):  # the sum is unknown if one increase is
        unknown: Counts = {"num_drafts": None, "draft_tokens": None, "accepted_tokens": None, "per_position": []}
        return from_answers or acceptance_from_log(log or "") or acceptance(source=None, counts=unknown)
    counted = acceptance("metrics", total(increases))
    drafted = counted["spec_decode_draft_tokens"] or counted["spec_decode_num_drafts"]
    if drafted and from_answers:
        # TensorRT-LLM's counters per iteration have no number of drafts, SGLang's no drafted tokens: fields that are
        # None are taken from the answers.
        counted |= {key: value for key, value in from_answers.items() if counted.get(key) is None}  # type: ignore[typeddict-item]
    if drafted is None and counted["spec_decode_acceptance_length"] is None and gauges:
        return {**counted, "spec_decode_acceptance_length": fmean(gauges), "spec_decode_source": "gauge"}
    return counted


def _counts_its_drafts(request: Request) -> bool:
    """True if the answer has the engine's counts of its own drafts."""
    return set(DRAFT_COUNTS) <= set(request.get("spec_metrics") or ())


def not_ok_count(result: ArmResult) -> int:
    """The number of requests of a result whose status is not "ok"."""
    return sum(result[status] for status in _NOT_OK)


def summary_lines(result: ArmResult) -> list[str]:
    """The result as lines for a terminal: problems first, then a table with one row per group."""
    lines = _warning_lines(result) + _failure_lines(result)
    lines += [
        f"{result['model_id']}: {count(result['completed'], 'request')} measured, "
        f"{result['max_concurrency']} at a time, {result['duration']:.1f} s",
        "",
    ]
    rows = [_table_row(name, group) for name, group in result["groups"].items()]
    if len(rows) != 1:
        rows.append(_table_row("all", result))
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
    lines += map("Throttled: {}.".format, rate_limit_sentences(by_arm))
    lines += [*_power_lines(result), *gpu_lines(result)]
    lines += map("Throttled: {}.".format, gpu_warnings(by_arm))
    if cached := result["total_cached_tokens"]:
        share = 100 * cached / result["total_input_tokens"]
        lines.append(f"{share:.0f} % of the input tokens came from the engine's prefix cache, which shortens TTFT.")
    return lines


def _power_lines(result: ArmResult) -> list[str]:
    """A line about the power used; empty if it could not be read."""
    power = result.get("power")
    if not power or (joules := power.get("j_per_output_token")) is None:
        return []
    idle = ""
    if power["idle_w"] is not None:
        idle = f", {_formatted(power['idle_w'])} W idle"
    per_token = f"{_formatted(joules)} J for each output token"
    return [f"Power: {_formatted(power['mean_w'])} W while answering{idle}; {per_token} ({power['source']})."]


def _without_tpot_lines(result: ArmResult) -> list[str]:
    """A line about complete answers without a TPOT, which its statistics leave out; empty if there are none."""
    answers = result.get("without_tpot")
    if not answers:
        return []
    return [
        f"{answers} of {count(result['completed'], 'answer')} had no TPOT: one token, or fewer than "
        f"{LEAST_PIECES} chunks (a proxy that buffers the stream?)."
    ]


def _warning_lines(result: ArmResult) -> list[str]:
    """The warnings that come before all numbers: an incomplete run, other clients' traffic, wrong token counts."""
    lines = []
    if result.get("incomplete"):
        lines.append("Incomplete: the run was stopped early.")
    for group, round_number, sentence in disturbances(result):
        lines.append(f"Polluted: {group}, round {round_number}: {sentence}.")
    # All speeds below are computed from the token counts.
    lines += map("Miscounted: {}.".format, arm_contradictions(result))
    if lines:
        lines.append("")
    return lines


def _failure_lines(result: ArmResult) -> list[str]:
    """The number of requests without a complete answer, and the first of each status; empty if all are complete."""
    if not not_ok_count(result):
        return []
    counts = [f"{result[status]} {meaning}" for status, meaning in _NOT_OK.items() if result[status]]
    lines = [f"{not_ok_count(result)} of {result['num_prompts']} requests did not succeed: {', '.join(counts)}."]
    first: dict[NotOk, str] = {}
    for request in result["requests"]:
        if request["status"] != OK:
            first.setdefault(request["status"], f"{request['prompt_id']}: {request['error']}")
    for status, text in first.items():
        lines.append(f"  first {_NOT_OK[status]}: {text}")
    return [*lines, "They are not included in the numbers below.", ""]


def _table_row(name: str, numbers: Numbers) -> tuple[str, ...]:
    """The cells of a group's row, in the order of the heading in `summary_lines`."""
    rate = numbers["spec_decode_acceptance_rate"]
    length = numbers["spec_decode_acceptance_length"]
    return (
        name,
        f"{numbers['completed']}/{numbers['num_prompts']}",
        _formatted(numbers["output_throughput"]),
        _formatted(numbers["median_ttft_ms"]),
        _formatted(numbers["p99_ttft_ms"]),
        _formatted(numbers["median_tpot_ms"]),
        _formatted(numbers["p99_tpot_ms"]),
        _formatted(numbers["median_itl_ms"]),
        _formatted(numbers["median_e2el_ms"]),
        f"{rate:.1f} %" if rate is not None else "-",
        _formatted(length),
    )


def _source_line(result: ArmResult) -> str:
    """A sentence on where the acceptance in the table comes from, or why it has none."""
    if result["spec_decode_source"] is None:
        return "Speculation: the server reports nothing about it."
    source = ACCEPTANCE_SOURCES[result["spec_decode_source"]]
    drafted = result["spec_decode_draft_tokens"]
    if drafted == 0:
        return f"Speculation: nothing was drafted, according to {source}."
    if drafted is None and result["spec_decode_acceptance_length"] == 1.0:
        return f"Speculation: one token per step, according to {source}: no draft tokens, or none accepted."
    return f"Speculation: accepted = share of the draft tokens, length = tokens per step; from {source}."


def _formatted(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"
