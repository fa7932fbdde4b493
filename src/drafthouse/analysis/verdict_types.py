"""Types of a report's verdict (`analysis.verdict.judge`) and cost (`analysis.cost`). None: unknown or not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..bench.result_types import Power
from ..bench.stats import Gain

if TYPE_CHECKING:
    from typing import NotRequired


class Control(Gain):
    """The A/A control: the baseline's odd rounds over its even ones. ``rounds`` lists both; one round is a number."""

    rounds: list[int | list[int]]


class FirstDifference(TypedDict):
    """The first difference of two texts, in characters and tokens from 0, and the lengths (``of``)."""

    prompt_id: str
    round: int
    character: int
    of: int  # length in characters
    token: int
    of_tokens: int  # length in tokens


class EqualOutputs(TypedDict):
    """How many texts at temperature 0 are equal, and where the others first differ (medians)."""

    pairs: int
    equal: int
    share: float
    first_difference_characters: float | None
    first_difference_tokens: float | None
    tokens_exact: bool  # False: estimated from the characters
    first_differences: list[FirstDifference]


class Outputs(TypedDict):
    """Equality of texts at temperature 0: between the arms, and between the baseline's first two rounds (control)."""

    speculative: EqualOutputs | None
    control: EqualOutputs | None


class Figures(TypedDict):
    """Speed-up, A/A control and output equality over some groups; a group is a prompt kind at one temperature."""

    speedup: Gain | None
    control: Control | None
    outputs: Outputs


class JudgedGroup(Figures):
    """The figures of one group; ``declared``: the verdict is about it."""

    declared: bool


class Scope(TypedDict):
    """What the verdict is about: declared kinds, their groups, concurrency, rounds, and the schedule of the arms."""

    kinds: list[str]
    groups: list[str]
    concurrency: int | None
    rounds: int
    schedule: str | None  # "interleaved": both arms run side by side


class Waits(TypedDict):
    """A time that a user waits for, median over the prompts in both arms (ms), and the paired speed-up."""

    baseline: float | None
    speculative: float | None
    speedup: Gain | None


class UserClock(TypedDict):
    """The times that a user waits for, medians over the prompts. ``ttfat_ms`` is the first token after the reasoning.

    ``e2el_ms`` is at the common output length: TTFT + (tokens - 1) * TPOT.
    """

    output_tokens: float | None
    ttft_ms: Waits
    ttfat_ms: Waits
    e2el_ms: Waits


class StartLevel(TypedDict):
    """The time per token of one server start over the mean of its arm, a ratio."""

    arm: str
    round: int
    level: float


class Starts(TypedDict):
    """How server starts and prompts contribute to the interval; standard deviations and errors are fractions.

    ``spread`` is the standard deviation of one start, ``apart`` the largest ratio between two starts, of
    ``apart_arm``. ``from_prompts`` and ``from_starts`` are the two parts of the speed-up's standard error.
    """

    spread: float
    levels: list[StartLevel]
    apart: float
    apart_arm: str
    from_prompts: float
    from_starts: float


class SumOfSeconds(TypedDict):
    """The answers' seconds in sum, at equal lengths: the ratio of baseline over speculative.

    ``low`` and ``high`` are one-sided 90 % and 99 % bounds, ``by_temperature`` has the measured
    ratio at each temperature.
    """

    ratio: float
    low: float
    high: float
    by_temperature: dict[str, float]


class SlowPrompt(TypedDict):
    """A prompt and its gain (a ratio, below 1 if speculation is slower)."""

    kind: str
    prompt_id: str
    gain: float


class NextRound(TypedDict):
    """Why another round is needed, and how many fresh prompts it asks: ``many`` or ``few``."""

    why: str
    fresh: str


class Drafting(TypedDict):
    """Whether an arm drafted (None: nothing shows it), and the evidence; counts are of answers unless named tokens."""

    drafted: bool | None
    one_token_an_iteration: int  # answers with one token per step, if there is no other sign; else 0
    no_sign: str  # why this engine may draft without a sign
    see_drafts: str  # the sign that newer versions of the engine show
    source: str | None
    draft_tokens: int
    accepted_tokens: float | None  # by the counters
    requests: int
    several_tokens_an_iteration: int  # answers (and a gauge) that prove accepted drafts


class GateSide(TypedDict):
    """One arm's figures at a gate; ``passed`` and ``total`` count answers or prompts, ``examples`` failed ones."""

    said: str
    passed: int
    total: int
    examples: list[str]


class CheckedSide(GateSide):
    """The figures at a gate that checks prompts singly: also the numbers of wrong and of open (undecided) prompts."""

    wrong: int
    open: int


class EqualSide(GateSide):
    """The figures at a gate that compares texts: also the median first difference in tokens."""

    first_difference_tokens: float | None
    tokens_exact: bool  # False: estimated from the characters


class GateFigures(TypedDict, total=False):
    """Tolerances of some gates: tokens per first difference by noise, and the allowed gap in nats."""

    tolerated_tokens: int
    epsilon: float | None


class JudgedArms(GateFigures):
    """The word of a gate, its sentence, and the figures of both arms."""

    word: str
    said: str
    baseline: GateSide
    speculative: GateSide


class JudgedGate(JudgedArms):
    """A judged gate with its name, title and rule."""

    name: str
    title: str
    rule: str


def gate_side(text: str, total: int, examples: Sequence[str] = ()) -> GateSide:
    """One arm's figures at a gate; ``examples`` are all of its ``total`` answers or prompts that did not pass."""
    return {"said": text, "passed": total - len(examples), "total": total, "examples": list(examples[:3])}


def not_measured(reason: str, side: str = "") -> JudgedArms:
    """The judgement of a gate without data, for the ``reason``; ``side`` is the arms' text if it differs."""
    empty_side = gate_side(side or reason, 0)
    return {"word": "not measured", "said": reason, "baseline": empty_side, "speculative": empty_side.copy()}


class AcceptanceFinding(TypedDict):
    """A problem of acceptance: its code, a sentence, and what to do."""

    code: str
    said: str
    do: str


class Judgement(Figures):
    """The verdict by the rule of number ``rule``.

    ``said`` is the sentence after the word, ``headline`` a dozen words of it, ``slowest`` the prompts with the
    smallest gain, ``slower_share`` the fraction of prompts with a gain below 1/1.03. ``next_round`` is None if no
    round is needed. ``counts`` is by arm, then by source that checked its token counts: None, or why it could not.
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
    """Energy per output token in joules, with and without the idle power, and per byte of text."""

    source: str | None
    mean_w: float | None
    idle_w: float | None
    j_per_output_token: float
    j_per_output_token_above_idle: float | None
    kwh_per_million_output_tokens: float
    j_per_byte_of_text: float | None


class Money(TypedDict):
    """The price of a million tokens, and of a million bytes of text."""

    currency: str | None
    price_per_hour: float
    per_million_output_alone: float  # the whole price charged to the output tokens
    per_million_bytes_of_text: float | None
    per_million_input: float | None  # the price split by time, see `cost.costs`
    per_million_output: float | None


class Saving(TypedDict):
    """What speculation saves of the price of the machine, in its currency; negative: it costs more."""

    share: float
    """Fraction of the baseline's price per output token."""
    per_hour: float
    """Per hour in which the baseline works."""
    per_million_output: float
    said: str


class Bandwidth(TypedDict):
    """How much of the memory bandwidth decoding uses; tokens/s, steps/s, bytes/s, and ``share`` as a fraction."""

    tok_s: float
    tokens_per_step: float
    steps_per_s: float
    bytes_per_step: float
    bytes_s: float
    bandwidth_bytes_s: float
    share: float
    limit_tok_s: float


class GpuMemory(TypedDict):
    """The peak memory in use on a GPU and its total, in bytes."""

    name: str | None
    used: int | None
    total: int | None


class Memory(TypedDict):
    """Memory in bytes: planned on one device, as the engine's log says (``told``), and as the GPUs showed."""

    planned: dict[str, float | None]
    told: dict[str, int]
    gpus: list[GpuMemory]


class TokenCosts(TypedDict):
    """The cost of an arm's tokens; ``why`` has the reasons for missing parts."""

    energy: Energy | None
    money: Money | None
    why: list[str]


class ArmCost(TokenCosts):
    """The cost of an arm; ``ready_s`` is the time from process start to ready, an upper limit if ``ready_at_most``."""

    power: Power | None
    bandwidth: Bandwidth | None
    memory: Memory
    ready_s: float | None
    ready_at_most: bool


class CostRow(TypedDict):
    """A row of the cost table."""

    what: str
    unit: str | None
    baseline: float | None
    speculative: float | None
    note: str | None
