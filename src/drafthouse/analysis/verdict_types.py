"""What a report reads of a verdict (`analysis.verdict.judge`) and of the cost (`analysis.cost`), as types."""

from __future__ import annotations

from typing import TypedDict

from ..bench.result_types import Power
from ..bench.stats import Estimated


class Control(Estimated):
    """The baseline's odd rounds over its even ones; ``rounds`` names both sides, a number where a side is one."""

    rounds: list[int | list[int]]


class FirstDifference(TypedDict):
    """Where two texts first differ."""

    prompt_id: str
    round: int
    character: int
    of: int
    token: int
    of_tokens: int


class EqualOutputs(TypedDict):
    """How many texts at temperature 0 are equal, and where the others first differ (medians)."""

    pairs: int
    equal: int
    share: float
    first_difference_characters: float | None
    first_difference_tokens: float | None
    tokens_exact: bool
    first_differences: list[FirstDifference]


class Outputs(TypedDict):
    """Texts at temperature 0: the two arms against each other, and the baseline asked twice."""

    speculative: EqualOutputs | None
    control: EqualOutputs | None


class Figures(TypedDict):
    """Speed-up, A/A control and equality of outputs over some groups."""

    speedup: Estimated | None
    control: Control | None
    outputs: Outputs


class JudgedGroup(Figures):
    """The same of one group; ``declared``: whether the verdict is about it."""

    declared: bool


class Scope(TypedDict):
    """What the verdict is about."""

    kinds: list[str]
    groups: list[str]
    concurrency: int | None
    rounds: int
    schedule: str | None


class Waits(TypedDict):
    """What a user waits for in both arms, in ms, and the paired speed-up."""

    baseline: float | None
    speculative: float | None
    speedup: Estimated | None


class UserClock(TypedDict):
    """What a user waits for: medians over the prompts. ``ttfat_ms`` is the first token of the answer, after thoughts.

    End to end is at the declared output length: TTFT + (tokens - 1) * TPOT.
    """

    output_tokens: float | None
    ttft_ms: Waits
    ttfat_ms: Waits
    e2el_ms: Waits


class StartLevel(TypedDict):
    """A start's time per token over the mean of its arm."""

    arm: str
    round: int
    level: float


class Starts(TypedDict):
    """What server starts differ by: the standard deviation as a share, and the steps left out."""

    spread: float | None
    levels: list[StartLevel]
    odd: list[StartLevel]
    apart: float
    quiet_low: float
    may_pay_yet: bool


class Drafting(TypedDict):
    """Whether an arm drafted, and what says so."""

    drafted: bool | None
    one_token_an_iteration: int
    no_sign: str
    see_drafts: str
    source: str | None
    draft_tokens: int
    accepted_tokens: float | None
    requests: int
    several_tokens_an_iteration: int


class GateSide(TypedDict):
    """What one arm did at a gate: answers or prompts."""

    said: str
    passed: int
    total: int
    examples: list[str]


class CheckedSide(GateSide):
    """The same of prompts that are looked at one by one."""

    wrong: int
    open: int


class EqualSide(GateSide):
    """The same of texts that are compared: where those that differ first do (median, in tokens)."""

    first_difference_tokens: float | None
    tokens_exact: bool


class GateFigures(TypedDict, total=False):
    """What some gates say beside it: figures of each group and of all, and what they grant."""

    groups: dict[str, dict[str, float]]
    all: dict[str, float]
    tolerated_tokens: int
    tolerated_cut: float
    epsilon: float | None


class JudgedArms(GateFigures):
    """What a gate says of both arms."""

    word: str
    said: str
    baseline: GateSide
    speculative: GateSide


class JudgedGate(JudgedArms):
    """A gate as judged."""

    name: str
    title: str
    rule: str


def not_measured(said: str, side: str = "") -> JudgedArms:
    """Return what a gate says that had nothing to look at; ``side`` of each arm, where that is not the same."""
    nothing: GateSide = {"said": side or said, "passed": 0, "total": 0, "examples": []}
    return {"word": "not measured", "said": said, "baseline": nothing, "speculative": nothing.copy()}


class AcceptanceFinding(TypedDict):
    """What is wrong with what is accepted: a code, the sentence, and what to do."""

    code: str
    said: str
    do: str


class Judgement(Figures):
    """The verdict; ``counts`` tells with what each arm's token counts were compared, null or why they could not be."""

    word: str
    wrong_output: bool
    sentence: str
    said: str
    reasons: list[str]
    warnings: list[str]
    threshold: float
    confidence: float
    scope: Scope
    synthetic: str | None
    user_clock: UserClock
    counts: dict[str, dict[str, str | None]]
    starts: Starts | None
    groups: dict[str, JudgedGroup]
    drafting: dict[str, Drafting]
    acceptance_findings: list[AcceptanceFinding]
    gates: list[JudgedGate]


class Energy(TypedDict):
    """Joules an output token and kWh per million of them, with the idle power inside and without it."""

    source: str | None
    mean_w: float | None
    idle_w: float | None
    j_per_output_token: float
    j_per_output_token_above_idle: float | None
    kwh_per_million_output_tokens: float
    kwh_per_million_output_tokens_above_idle: float | None


class Money(TypedDict):
    """What a million tokens cost."""

    currency: str | None
    price_per_hour: float
    per_million_output_alone: float
    per_million_all_tokens: float
    input_share_of_time: float | None
    per_million_input: float | None
    per_million_output: float | None


class Saving(TypedDict):
    """What speculation saves of the box's price, in its currency; below 0 it costs more. ``said`` is for people."""

    share: float
    """Of the baseline's price per output token."""
    per_hour: float
    """Of each hour that the baseline works."""
    per_million_output: float
    said: str


class Bandwidth(TypedDict):
    """How near decoding comes to what the memory's bandwidth allows; tokens/s, steps/s, bytes/s."""

    tok_s: float
    tokens_per_step: float
    steps_per_s: float
    bytes_per_step: float
    bytes_s: float
    bandwidth_bytes_s: float
    share: float
    limit_tok_s: float


class GpuMemory(TypedDict):
    """The most that a GPU showed as used, in bytes."""

    name: str | None
    used: int | None
    total: int | None


class Memory(TypedDict):
    """Bytes: planned on one device, as the engine's log tells, and as the GPUs showed."""

    planned: dict[str, float | None]
    told: dict[str, int]
    gpus: list[GpuMemory]


class TokenCosts(TypedDict):
    """What the tokens of an arm cost, and why parts of it are not known."""

    energy: Energy | None
    money: Money | None
    why: list[str]


class ArmCost(TokenCosts):
    """What an arm costs."""

    power: Power | None
    bandwidth: Bandwidth | None
    memory: Memory
    ready_s: float | None
    ready_at_most: bool


class CostRow(TypedDict):
    """A row of the cost as shown."""

    what: str
    unit: str | None
    baseline: float | None
    speculative: float | None
    note: str | None
