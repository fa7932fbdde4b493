"""Steps and results as types: what is measured, and what of it is kept.

Files of earlier versions may hold less (`kept_shapes.py`): who reads such a file asks with ``get``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..core.step_clock import Begun
from ..serving.readiness import ToldOfStart

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NotRequired

    from drafthouse.bench.machine_types import Disturbance, GpuMeasured, StepMachine, Waited
    from drafthouse.bench.outcome import Status
    from drafthouse.bench.output_scoring import ScoredAnswer, Scoring, ScoringTotal, TokenIds
    from drafthouse.prompts.suite_types import Gate


#: What ``spec_decode_source`` may be, in words for a reader.
ACCEPTANCE_SOURCES: Final = {
    "metrics": "the engine's counters",
    "response": "the answers themselves",
    "log": "the engine's log lines",
    "gauge": "an engine gauge of its last steps only",
}


class ToolCall(TypedDict):
    """A call in an answer, its arguments as the text that came."""

    name: str | None
    arguments: str


class Cost(TypedDict):
    """What a request may have cost its server; None where that is not known."""

    status: Status
    input_tokens: int | None
    output_tokens: int | None
    chunks: int
    tool_calls: list[ToolCall] | None
    # As the engine's answer has them.
    timings: dict[str, Any] | None


class Request(Cost):
    """One request and its answer: times in ms, None where they are not known (`client.raw_request`)."""

    prompt_id: str
    kind: str
    suite: str
    group: str
    round: int
    temperature: float
    error: str | None
    http_status: int | None
    throttled: int
    throttled_s: float
    started_s: float
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
    """What was drafted and accepted; None where an engine does not count it."""

    num_drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    per_position: Sequence[float]


class Snapshot(Counts):
    """An engine's counters at a moment; ``error`` says why they could not be read."""

    dialect: str | None
    present: bool
    error: str | None
    family: NotRequired[str]
    length: NotRequired[float]
    traffic: NotRequired[dict[str, float]]


class Counted(TypedDict):
    """The output tokens of so many answers, by the engine's counters and by its usage."""

    engine: int
    usage: int
    answers: int


class CounterPair(TypedDict):
    """An engine's counters before and after."""

    before: Snapshot
    after: Snapshot


class CounterReading(CounterPair):
    """An engine's counters around a group."""

    round: int
    group: str
    foreign: NotRequired[Disturbance | None]
    counted: NotRequired[Counted | None]


class Span(TypedDict):
    """How long a group took, in seconds."""

    round: int
    group: str
    duration_s: float


class EnergySpan(TypedDict):
    """What was used of energy in seconds of answering, and what the idle machine takes in that time."""

    seconds: float
    energy_j: float
    idle_j: float | None


class PowerSpan(TypedDict):
    """What a group used of power; None where it could not be read."""

    round: int
    group: str
    span: EnergySpan | None


class GpuSpan(TypedDict):
    """What the GPUs did while a group was answered."""

    round: int
    group: str
    gpus: list[GpuMeasured]


class PowerMeter(TypedDict):
    """The meter: what it reads or why it reads nothing, its devices, and the power of the idle machine in W."""

    source: str | None
    why: str | None
    devices: list[str]
    idle_w: float | None


class WarmUp(TypedDict):
    """The requests before the measured ones."""

    sent: int
    failed: int
    error: str | None


class TokenizerUse(TypedDict):
    """Why the engine's tokenizer could not be asked; None where it could."""

    error: str | None


class ServerSettings(TypedDict, total=False):
    """What a server says of its settings, as text; only those that it names."""

    context: str
    cache_dtype: str
    block_size: str
    prefix_cache: str
    max_sequences: str


class EngineSeen(ToldOfStart, total=False):
    """The engine as the profile names it, and what it said of itself while it ran."""

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
    """What a step measured of one arm."""

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
    memory: NotRequired[dict[str, int]]
    log: NotRequired[str]


class StepSettings(TypedDict):
    """How a step was measured (`groups.StepOptions`)."""

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
    """A step: arms measured on the same starts, kept in a file of its own."""

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
    """What disturbed it although it was measured again."""
    waited: NotRequired[Waited]
    cost_s: NotRequired[float]
    scoring: NotRequired[Scoring]


class Drafting(TypedDict):
    """How much was accepted: the rate in percent, the others as vLLM names them (`spec_metrics.py`)."""

    spec_decode_acceptance_rate: float | None
    spec_decode_acceptance_length: float | None
    spec_decode_draft_tokens: int | None
    spec_decode_accepted_tokens: int | None
    spec_decode_source: str | None


class Acceptance(Drafting):
    """What was drafted and accepted, in all that is known of it."""

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
    """Counts and speeds of some requests; throughput a second."""

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
    """Latencies of some requests in ms; None where none of them has one."""

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
    """What `vllm bench serve` writes beside its numbers."""

    date: str
    backend: str
    model_id: str
    request_rate: str
    max_concurrency: int


class Measured(Speeds, Latencies, Acceptance):
    """All that is counted and timed of some requests."""


class Numbers(Head, Measured):
    """The same of an arm, or of one of its groups."""

    power: Power


class Reasoning(TypedDict):
    """How many of the whole answers began with reasoning."""

    answers: int
    of: int


class ArmExtras(TypedDict, total=False):
    """What stands beside an arm's numbers where it is known; memory in bytes and tokens."""

    memory: dict[str, int]


class ArmResult(Numbers, ArmExtras):
    """The result of one arm (`results.assemble`)."""

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
