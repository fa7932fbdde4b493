"""What a report reads of a verdict (`analysis.verdict.judge`) and of the cost (`analysis.cost`), as types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..bench.result_types import Power
from ..bench.stats import Gain

if TYPE_CHECKING:
    from typing import NotRequired


class Control(Gain):
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

    speedup: Gain | None
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
    speedup: Gain | None


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
    """What server starts and prompts add to the interval.

    ``spread`` is the standard deviation of one start as a share, ``apart`` how far two starts of ``apart_arm`` lie
    apart (a ratio), ``from_prompts`` and ``from_starts`` the two parts of the speed-up's standard error as shares.
    """

    spread: float
    levels: list[StartLevel]
    apart: float
    apart_arm: str
    from_prompts: float
    from_starts: float


class SumOfSeconds(TypedDict):
    """The answers' seconds at equal lengths in sum, baseline over speculative: over all with its one-sided bounds.

    ``low`` is the lower 90 % bound, ``high`` the upper 99 % bound, ``by_temperature`` the ratio at each as measured.
    """

    ratio: float
    low: float
    high: float
    by_temperature: dict[str, float]


class SlowPrompt(TypedDict):
    """A prompt with its gain, a ratio."""

    kind: str
    prompt_id: str
    gain: float


class NextRound(TypedDict):
    """Why another round is needed, and how many fresh prompts it asks: ``many`` or ``few``."""

    why: str
    fresh: str


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
    """What some gates grant: a first difference once in so many tokens, and a gap in nats."""

    tolerated_tokens: int
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


def gate_side(said: str, total: int, examples: Sequence[str] = ()) -> GateSide:
    """What one arm did at a gate where each of ``examples`` is one of its ``total`` answers that did not pass."""
    return {"said": said, "passed": total - len(examples), "total": total, "examples": list(examples[:3])}


def not_measured(said: str, side: str = "") -> JudgedArms:
    """What a gate says that had nothing to look at; ``side`` of each arm, where that is not the same."""
    nothing = gate_side(side or said, 0)
    return {"word": "not measured", "said": said, "baseline": nothing, "speculative": nothing.copy()}


class AcceptanceFinding(TypedDict):
    """What is wrong with what is accepted: a code, the sentence, and what to do."""

    code: str
    said: str
    do: str


class Judgement(Figures):
    """The verdict by the rule of number ``rule``.

    ``said`` is the sentence behind the word, ``headline`` a dozen words of it, its beginning where it is of a speed-up.
    ``slowest`` are the prompts that gain least, ``slower_share`` the share of the prompts slower by 3 % or more,
    ``next_round`` what another round should ask (None: none is needed), ``counts`` with what each arm's token counts
    were compared, null or why they could not be.
    """

    rule: int
    word: str
    wrong_output: bool
    sentence: str
    headline: NotRequired[str]
    said: str
    reasons: list[str]
    warnings: list[str]
    threshold: float
    confidence: float
    scope: Scope
    synthetic: str | None
    seconds: SumOfSeconds | None
    slowest: list[SlowPrompt]
    slower_share: float | None
    next_round: NextRound | None
    user_clock: UserClock
    counts: dict[str, dict[str, str | None]]
    starts: Starts | None
    groups: dict[str, JudgedGroup]
    drafting: dict[str, Drafting]
    acceptance_findings: list[AcceptanceFinding]
    gates: list[JudgedGate]


class Energy(TypedDict):
    """Joules an output token, with the idle power inside and without it, and a byte of text."""

    source: str | None
    mean_w: float | None
    idle_w: float | None
    j_per_output_token: float
    j_per_output_token_above_idle: float | None
    kwh_per_million_output_tokens: float
    j_per_byte_of_text: float | None


class Money(TypedDict):
    """What a million tokens, or bytes of text, cost."""

    currency: str | None
    price_per_hour: float
    per_million_output_alone: float
    per_million_bytes_of_text: float | None
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
