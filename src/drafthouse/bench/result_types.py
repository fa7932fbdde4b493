"""Types of a measured step and of the result of an arm (baseline or speculative), both of which are JSON files.

A group is one prompt kind at one temperature. Files of earlier versions may lack keys, so readers use ``get``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..core.step_clock import Begun
from ..serving.readiness import StartFacts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NotRequired

    from drafthouse.bench.machine_types import Disturbance, GpuMeasured, StepMachine, Waited
    from drafthouse.bench.outcome import Status
    from drafthouse.bench.output_scoring import ScoredAnswer, Scoring, ScoringTotal, TokenIds
    from drafthouse.prompts.suite_types import Gate


#: The values of ``spec_decode_source``, with their meaning in words.
ACCEPTANCE_SOURCES: Final = {
    "metrics": "the engine's counters",
    "response": "the answers themselves",
    "log": "the engine's log lines",
    "gauge": "an engine gauge of its last steps only",
}


class ToolCall(TypedDict):
    """A tool call in an answer; ``arguments`` is JSON text as received."""

    name: str | None
    arguments: str


class Cost(TypedDict):
    """The work that a request caused on its server; None: unknown. ``chunks`` counts chunks with tokens."""

    status: Status
    input_tokens: int | None
    output_tokens: int | None
    chunks: int
    tool_calls: list[ToolCall] | None
    # llama.cpp's figures, as received.
    timings: dict[str, Any] | None


class Request(Cost):
    """One request and its answer, explained at `raw_request.raw_request`; None: unknown."""

    prompt_id: str
    kind: str
    suite: str
    group: str
    round: int
    temperature: float
    error: str | None
    http_status: int | None
    throttled: int  # answers with HTTP 429 before this one
    throttled_s: float  # the waits after them
    started_s: float  # since the start of the step; in a result since that of the first step
    max_tokens: int
    cached_tokens: int | None
    ttft_ms: float | None
    ttfat_ms: float | None
    e2el_ms: float | None
    tpot_ms: float | None
    itls_ms: list[float]
    finish_reason: str | None
    text: str
    reasoning_text: str
    pieces: list[int]
    gate: Gate | None
    avg_decoded_tokens_per_iter: float | None
    spec_metrics: dict[str, Any] | None
    tokenized: NotRequired[int | None]


class Counts(TypedDict):
    """Numbers of drafts and tokens, and of accepted tokens by draft position; None: the engine has no such counter."""

    num_drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    per_position: Sequence[float]


class Snapshot(Counts):
    """An engine's counters at one moment; ``error`` is the reason if they could not be read."""

    dialect: str | None  # the engine's name; None: no supported engine
    present: bool  # False if the engine shows no speculation counters
    error: str | None
    family: NotRequired[str]  # the set of counters, for an engine that has several
    length: NotRequired[float]  # a gauge of the mean acceptance length
    traffic: NotRequired[dict[str, float]]  # as of `foreign_traffic.parse_traffic`


class Counted(TypedDict):
    """The output tokens of some answers by two sources, and the number of these answers."""

    engine: int  # by the engine's counters
    usage: int  # by the usage of the answers
    answers: int


class CounterPair(TypedDict):
    """An engine's counters before and after some requests."""

    before: Snapshot
    after: Snapshot


class CounterReading(CounterPair):
    """An engine's counters before and after a group, with other clients' traffic and the tokens counted in between."""

    round: int
    group: str
    foreign: NotRequired[Disturbance | None]
    counted: NotRequired[Counted | None]


class Span(TypedDict):
    """The duration of a group, in seconds."""

    round: int
    group: str
    duration_s: float


class EnergySpan(TypedDict):
    """The energy used during ``seconds`` of answering; ``idle_j`` is what the idle machine uses in that time."""

    seconds: float
    energy_j: float
    idle_j: float | None


class PowerSpan(TypedDict):
    """The energy used by a group; None if it could not be read."""

    round: int
    group: str
    span: EnergySpan | None


class GpuSpan(TypedDict):
    """The summaries of the GPUs while a group was answered."""

    round: int
    group: str
    gpus: list[GpuMeasured]


class PowerMeter(TypedDict):
    """The power meter of a step."""

    source: str | None  # what it reads, for people; None without a meter
    why: str | None  # why it has no source, or lost it
    devices: list[str]
    idle_w: float | None  # the power of the idle machine; None: not measured


class WarmUp(TypedDict):
    """The warm-up requests of an arm."""

    sent: int
    failed: int
    error: str | None  # of the first one that failed


class TokenizerUse(TypedDict):
    """The reason why the engine's tokenizer could not be used; None if it could."""

    error: str | None


class ServerSettings(TypedDict, total=False):
    """The settings that a server reports, as text; those that it does not report are missing."""

    context: str
    cache_dtype: str
    block_size: str
    prefix_cache: str
    max_sequences: str


class EngineSeen(StartFacts, total=False):
    """The engine as the profile names it, and what the running engine reported about itself."""

    id: str
    name: str
    version: str
    runtime: str
    version_answered: str | None
    max_model_len_answered: int | None
    settings_answered: ServerSettings
    model_runner: str
    async_scheduling: str


class StepArm(TypedDict):
    """One arm's part of a step."""

    model_id: str
    base_url: str
    requests: list[Request]
    spans: list[Span]
    counters: list[CounterReading]
    power: list[PowerSpan]
    gpus: list[GpuSpan]
    tokenizer: TokenizerUse
    token_ids: list[TokenIds]
    warmup: WarmUp
    engine: NotRequired[EngineSeen]
    memory: NotRequired[dict[str, int]]  # bytes or tokens, by name
    log: NotRequired[str]  # the engine's lines about drafting


class StepSettings(TypedDict):
    """The settings of a step, explained at `groups.StepOptions`; ``interleaved``: the arms took turns."""

    concurrency: int
    rounds: int
    first_round: int
    temperatures: Sequence[float]
    seed: int | None
    timeout_s: float
    warmups: int
    ignore_eos: bool
    kinds: Sequence[str]
    token_ids: int
    interleaved: bool


class StepResult(Begun):
    """A step: the arms measured on one server start each, with all their requests; it is one file."""

    schema: str
    started: str
    duration_s: float
    settings: StepSettings
    suites: list[str]
    arms: dict[str, StepArm]
    power_meter: PowerMeter
    machine: StepMachine
    incomplete: NotRequired[bool]
    notes: NotRequired[list[str]]
    disturbed: NotRequired[str]
    """The disturbance that remained after the step was repeated."""
    waited: NotRequired[Waited]
    cost_s: NotRequired[float]  # seconds of the step and of the start of its servers
    scoring: NotRequired[Scoring]


class Drafting(TypedDict):
    """Acceptance under vLLM's names (`spec_metrics.py`): the rate in percent, the length in tokens per draft."""

    spec_decode_acceptance_rate: float | None
    spec_decode_acceptance_length: float | None
    spec_decode_draft_tokens: int | None
    spec_decode_accepted_tokens: int | None
    spec_decode_source: str | None


class Acceptance(Drafting):
    """Acceptance with the number of drafts and the rate (a fraction) at each draft position."""

    spec_decode_num_drafts: int | None
    spec_decode_per_position_acceptance_rates: list[float] | None


class Power(TypedDict):
    """What an arm used of power: W and J."""

    source: str | None
    why: NotRequired[str | None]
    devices: NotRequired[list[str]]
    gpus: NotRequired[int]
    idle_w: float | None
    mean_w: float | None
    energy_j: float | None
    energy_above_idle_j: NotRequired[float | None]
    seconds: NotRequired[float | None]
    output_tokens: NotRequired[int | None]
    j_per_output_token: NotRequired[float | None]


class Speeds(TypedDict):
    """Counts and speeds of some requests; throughputs are per second, ``duration`` in seconds."""

    num_prompts: int
    duration: float
    completed: int
    failed: int
    cut_off: int
    empty: int
    no_usage: int
    without_tpot: int
    throttled: int
    total_input_tokens: int
    total_output_tokens: int
    total_cached_tokens: int
    request_throughput: float | None
    output_throughput: float | None
    total_token_throughput: float | None


class Latencies(TypedDict):
    """Latencies of some requests in ms; None if no request has a value."""

    mean_ttft_ms: float | None
    median_ttft_ms: float | None
    std_ttft_ms: float | None
    p99_ttft_ms: float | None
    mean_ttfat_ms: float | None
    median_ttfat_ms: float | None
    std_ttfat_ms: float | None
    p99_ttfat_ms: float | None
    mean_tpot_ms: float | None
    median_tpot_ms: float | None
    std_tpot_ms: float | None
    p99_tpot_ms: float | None
    mean_itl_ms: float | None
    median_itl_ms: float | None
    std_itl_ms: float | None
    p99_itl_ms: float | None
    mean_e2el_ms: float | None
    median_e2el_ms: float | None
    std_e2el_ms: float | None
    p99_e2el_ms: float | None


class Head(TypedDict):
    """The keys that `vllm bench serve` writes before its numbers."""

    date: str
    backend: str
    model_id: str
    request_rate: str
    max_concurrency: int


class Measured(Speeds, Latencies, Acceptance):
    """Counts, speeds, latencies and acceptance of some requests."""


class Numbers(Head, Measured):
    """The numbers of an arm, or of one of its groups."""

    power: Power


class Reasoning(TypedDict):
    """The number of complete answers with reasoning, ``of`` all complete answers."""

    answers: int
    of: int


class ArmExtras(TypedDict, total=False):
    """Optional keys of an arm's result; ``memory`` in bytes or tokens by name."""

    memory: dict[str, int]


class ArmResult(Numbers, ArmExtras):
    """The result of one arm, assembled from its steps (`results.assemble`); ``groups`` by `groups.group_key`."""

    schema: str
    arm: str
    profile: str | None
    key: str | None
    reasoning: Reasoning
    rounds: int
    groups: dict[str, Numbers]
    engine: EngineSeen
    settings: StepSettings
    suites: list[str]
    incomplete: bool
    notes: list[str]
    warmup: list[WarmUp]
    tokenizer: TokenizerUse | None
    counters: list[CounterReading]
    scored: list[ScoredAnswer]
    scoring: ScoringTotal | None
    machine: StepMachine
    gpus: list[GpuSpan]
    requests: list[Request]
