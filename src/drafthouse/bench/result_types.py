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
    """The work that a request caused on its server; None: unknown."""

    status: Status
    input_tokens: int | None  # by the server's usage, as the next one
    output_tokens: int | None
    chunks: int  # pieces of the stream that carried tokens; 0 for an answer that was not streamed
    tool_calls: list[ToolCall] | None  # None also: the answer has none
    timings: dict[str, Any] | None  # llama.cpp's figures, as received


class Request(Cost):
    """One request and its answer, explained in `raw_request.py`; None: unknown."""

    prompt_id: str
    kind: str  # the prompt kind
    suite: str  # the file of prompts
    group: str  # the kind at one temperature, from `groups.group_key`
    round: int
    temperature: float
    error: str | None  # why the status is not "ok"; None: it is
    http_status: int | None  # None: no response
    throttled: int  # answers with HTTP 429 before this one
    throttled_s: float  # the waits after them
    started_s: float  # since the start of the step; in a result since that of the first step
    max_tokens: int  # the most output tokens that were requested
    cached_tokens: int | None  # prompt tokens from the engine's prefix cache
    ttft_ms: float | None  # from sending to the first token
    ttfat_ms: float | None  # from sending to the first token that is not reasoning
    e2el_ms: float | None  # from sending to the last token
    tpot_ms: float | None  # time per output token after the first
    itls_ms: list[float]  # gaps between chunks with tokens
    finish_reason: str | None
    text: str
    reasoning_text: str
    pieces: list[int]  # characters of each chunk, first those of reasoning
    gate: Gate | None  # the check of the answer; None: only its speed counts
    avg_decoded_tokens_per_iter: float | None  # TensorRT-LLM's output tokens per engine step
    spec_metrics: dict[str, Any] | None  # vLLM's or SGLang's statistics of this answer's drafts
    tokenized: NotRequired[int | None]  # tokens of the text by the engine's tokenizer; missing: not asked


class Counts(TypedDict):
    """What was drafted, and what of it was accepted; None: the engine has no such counter."""

    num_drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    per_position: Sequence[float]  # accepted tokens at each position in the draft; empty: not known


class Snapshot(Counts):
    """An engine's counters at one moment; ``error`` is the reason if they could not be read."""

    dialect: str | None  # the engine's name; None: no supported engine
    present: bool  # False if the engine shows no speculation counters
    error: str | None
    family: NotRequired[str]  # the set of counters, for an engine that has several
    length: NotRequired[float]  # a gauge of the mean acceptance length
    traffic: NotRequired[dict[str, float]]  # from `foreign_traffic.parse_traffic`


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
    """The duration of a group."""

    round: int
    group: str
    duration_s: float  # in which the arm had requests running


class EnergySpan(TypedDict):
    """The energy used during ``seconds`` of answering."""

    seconds: float
    energy_j: float
    idle_j: float | None  # what the idle machine uses in that time; None: not measured


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

    model_id: str  # the model's name in requests
    base_url: str  # without passwords
    requests: list[Request]
    spans: list[Span]  # this and the next three: one for each group
    counters: list[CounterReading]
    power: list[PowerSpan]
    gpus: list[GpuSpan]  # [] without GPUs
    tokenizer: TokenizerUse
    token_ids: list[TokenIds]  # of the answers that the baseline may score
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
    started: str  # ISO 8601 in UTC
    duration_s: float
    settings: StepSettings
    suites: list[str]  # names of the files of prompts
    arms: dict[str, StepArm]
    power_meter: PowerMeter
    machine: StepMachine
    incomplete: NotRequired[bool]  # True if the step was stopped before its end
    notes: NotRequired[list[str]]  # sentences for people about the step
    disturbed: NotRequired[str]  # the disturbance that remained after the step was repeated
    waited: NotRequired[Waited]  # the wait for a quiet machine before the step
    cost_s: NotRequired[float]  # seconds of the step and of the start of its servers
    scoring: NotRequired[Scoring]  # of answers by the baseline, after the step


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
    """The power (W) and energy (J) that an arm used; null if not measured."""

    source: str | None  # what was read, for people
    why: NotRequired[str | None]  # why a number is missing
    devices: NotRequired[list[str]]  # names of what was measured
    gpus: NotRequired[int]  # number of devices, also if they are CPU packages
    idle_w: float | None  # the power of the idle machine, with loaded engines
    mean_w: float | None  # while requests were answered, as the next two
    energy_j: float | None
    energy_above_idle_j: NotRequired[float | None]
    seconds: NotRequired[float | None]  # in which requests were answered
    output_tokens: NotRequired[int | None]  # only in a step of a load sweep; None: some were not counted
    j_per_output_token: NotRequired[float | None]


class Speeds(TypedDict):
    """Counts and speeds of some requests; throughputs are per second, ``duration`` in seconds."""

    num_prompts: int  # requests; a prompt counts once for each round
    duration: float
    completed: int  # complete answers; the next four are the other statuses of `outcome.STATUSES`
    failed: int
    cut_off: int
    empty: int
    no_usage: int
    without_tpot: int  # complete answers that have no TPOT although they were streamed
    throttled: int  # requests that were sent again after HTTP 429
    total_input_tokens: int  # this and the next two: of complete answers
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

    date: str  # start of the first step, YYYYMMDD-HHMMSS in UTC
    backend: str  # vLLM's name for the API that was used
    model_id: str
    request_rate: str  # "inf": requests wait for no clock
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
    arm: str  # baseline, speculative or stock
    profile: str | None  # None: measured without a profile
    key: str | None  # hash of the resolved profile and the machine; None: without a profile
    reasoning: Reasoning
    rounds: int  # number of rounds measured
    groups: dict[str, Numbers]
    engine: EngineSeen
    settings: StepSettings  # of the first step
    suites: list[str]
    incomplete: bool  # True if a step was stopped before its end
    notes: list[str]  # sentences for people about the steps
    warmup: list[WarmUp]  # one for each step
    tokenizer: TokenizerUse | None  # of the last step
    counters: list[CounterReading]
    scored: list[ScoredAnswer]  # this arm's answers that the baseline scored
    scoring: ScoringTotal | None  # of both arms; None: no step scored
    machine: StepMachine  # before the first step, after the last one, and around each group
    gpus: list[GpuSpan]
    requests: list[Request]
