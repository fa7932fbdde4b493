"""Types of a report's verdict (`analysis.verdict.judge`) and cost (`analysis.cost`). None: unknown or not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..bench.result_types import Power
from ..bench.stats import Gain

if TYPE_CHECKING:
    from typing import NotRequired


class Control(Gain):
    """The A/A control: the speed-up of the baseline's odd rounds over its even ones, near 1 on a steady machine."""

    rounds: list[int | list[int]]  # the odd rounds, then the even ones; a number in place of a list of one round


class FirstDifference(TypedDict):
    """The first difference of two texts, as positions from 0, and the lengths of the texts."""

    prompt_id: str
    round: int
    character: int  # the position in characters
    of: int  # length of the longer text in characters
    token: int  # the position in tokens of the first text
    of_tokens: int  # length of the first text in tokens


class EqualOutputs(TypedDict):
    """How many texts at temperature 0 are equal, and where the others first differ."""

    pairs: int  # compared pairs of texts
    equal: int  # pairs of equal texts
    share: float  # equal / pairs
    first_difference_characters: float | None  # median position over the differing pairs; None if all are equal
    first_difference_tokens: float | None  # the same in tokens
    tokens_exact: bool  # False: estimated from the characters
    first_differences: list[FirstDifference]  # at most 20, the earliest first


class Outputs(TypedDict):
    """Equality of texts at temperature 0; None without a pair of texts."""

    speculative: EqualOutputs | None  # between the arms
    control: EqualOutputs | None  # between the baseline's first two rounds


class Figures(TypedDict):
    """Speed-up, A/A control and output equality over some groups; a group is a prompt kind at one temperature."""

    speedup: Gain | None  # None for fewer than two prompts that both arms answered
    control: Control | None  # None unless the baseline answered a prompt in an odd and in an even round
    outputs: Outputs


class JudgedGroup(Figures):
    """The figures of one group."""

    declared: bool  # True: its kind is declared by the profile, so the verdict is about it


class Scope(TypedDict):
    """What the verdict is about."""

    kinds: list[str]  # the prompt kinds that the profile declares; empty: see `evidence.declared_groups`
    groups: list[str]  # the names of their groups ("chat@0.6")
    concurrency: int | None  # requests at a time
    rounds: int
    schedule: str | None  # "interleaved": both arms run side by side


class Waits(TypedDict):
    """A time that a user waits for, in both arms."""

    baseline: float | None  # median over the prompts, in ms
    speculative: float | None  # the same for the other arm
    speedup: Gain | None  # the ratio baseline over speculative, prompt by prompt


class UserClock(TypedDict):
    """The times that a user waits for. Times are in ms, although their ``speedup`` is a ratio."""

    output_tokens: float | None  # the common output length, median over the prompts
    ttft_ms: Waits  # until the first token
    ttfat_ms: Waits  # until the first token after the reasoning
    e2el_ms: Waits  # until the end of an answer of the common output length: TTFT + (tokens - 1) * TPOT


class StartLevel(TypedDict):
    """The speed of one server start."""

    arm: str
    round: int
    level: float  # the start's time per token over the mean of its arm, a ratio


class Starts(TypedDict):
    """How server starts and prompts contribute to the interval; standard deviations and errors are fractions."""

    spread: float  # standard deviation of one start
    levels: list[StartLevel]
    apart: float  # the largest ratio between two starts of one arm
    apart_arm: str  # that arm
    from_prompts: float  # the part of the speed-up's standard error that the prompts cause
    from_starts: float  # the part that server starts cause


class SumOfSeconds(TypedDict):
    """The answers' seconds in sum, at equal lengths: the ratio of baseline over speculative."""

    ratio: float
    low: float  # one-sided 90 % lower bound
    high: float  # one-sided 99 % upper bound
    by_temperature: dict[str, float]  # the measured ratio at each temperature


class SlowPrompt(TypedDict):
    """A prompt that gains little."""

    kind: str
    prompt_id: str
    gain: float  # the prompt's speed-up, a ratio; below 1 if speculation is slower


class NextRound(TypedDict):
    """The further round that the verdict asks for."""

    why: str  # the cause of `cannot say`, and its explanation
    fresh: str  # how many fresh prompts the round asks, "many" or "few" (`prompt_plan.FRESH_LATER`)


class Drafting(TypedDict):
    """Whether an arm drafted (None: nothing shows it), and the evidence; counts are of answers unless named tokens."""

    drafted: bool | None
    one_token_an_iteration: int  # answers with one token per step, if there is no other sign; else 0
    no_sign: str  # why this engine may draft without a sign; "" if it always shows one
    see_drafts: str  # the sign that newer versions of the engine show; "" if there is none
    source: str | None  # where the counters come from, for example "gauge"; None without counters
    draft_tokens: int
    accepted_tokens: float | None  # by the counters
    requests: int  # all requests of the arm
    several_tokens_an_iteration: int  # answers (and a gauge) that prove accepted drafts


class GateSide(TypedDict):
    """One arm's figures at a gate, a test of the outputs."""

    said: str  # the figures in words
    passed: int  # answers or prompts, depending on the gate
    total: int  # the same unit
    examples: list[str]  # the first three that did not pass, each with the reason


class CheckedSide(GateSide):
    """One arm's figures at a gate that checks prompts singly."""

    wrong: int  # prompts with a wrong answer
    open: int  # prompts that could not be decided, mostly because the output length limit cut them off


class EqualSide(GateSide):
    """One arm's figures at a gate that compares texts."""

    first_difference_tokens: float | None  # median position of the first difference; None if all texts are equal
    tokens_exact: bool  # False: estimated from the characters


class GateFigures(TypedDict, total=False):
    """The tolerances of a gate, if it has any."""

    tolerated_tokens: int  # numerical noise may cause one first difference in this many tokens
    epsilon: float | None  # the allowed gap of log-probability per token, in nats; None: no answers at temperature 0


class JudgedArms(GateFigures):
    """The judgement of a gate over both arms."""

    word: str  # "passed", "failed", "not measured", or "no baseline" if the baseline itself does not pass
    said: str  # the explanation of the word
    baseline: GateSide
    speculative: GateSide


class JudgedGate(JudgedArms):
    """The judgement of a gate, with what identifies the gate."""

    name: str  # the key of the gate, "outputs" for example
    title: str
    rule: str  # when the gate fails, in words


def gate_side(text: str, total: int, examples: Sequence[str] = ()) -> GateSide:
    """One arm's figures at a gate; ``examples`` are all of its ``total`` answers or prompts that did not pass."""
    return {"said": text, "passed": total - len(examples), "total": total, "examples": list(examples[:3])}


def not_measured(reason: str, side: str = "") -> JudgedArms:
    """The judgement `not measured` of a gate, for the ``reason``; ``side`` is the arms' text, the reason if ""."""
    empty_side = gate_side(side or reason, 0)
    return {"word": "not measured", "said": reason, "baseline": empty_side, "speculative": empty_side.copy()}


class AcceptanceFinding(TypedDict):
    """A problem of acceptance."""

    code: str  # the kind of problem: `TOO_DEEP`, `DEAD` or `COLLAPSES` in `acceptance_findings.py`
    said: str  # the problem as a sentence
    do: str  # what to do


class Judgement(Figures):
    """The verdict; its speed-up, control and outputs (`Figures`) are over the declared groups."""

    rule: int  # the number of the rule that gave the word
    word: str  # one of `words.Word`
    wrong_output: bool  # True: a gate failed, so the word is `does not pay` or `invalid`
    sentence: str  # marks of the profile, the word, and ``said``
    headline: NotRequired[str]  # about a dozen words of ``said``; missing in older reports
    said: str  # the explanation after the word
    reasons: list[str]  # the most important first
    warnings: list[str]
    threshold: float  # `words.THRESHOLD`
    confidence: float  # of the intervals, a fraction
    scope: Scope
    synthetic: str | None  # why the profile's models are not real; None: they are
    seconds: SumOfSeconds | None
    slowest: list[SlowPrompt]  # the prompts with the smallest gain
    slower_share: float | None  # the fraction of prompts with a gain below 1/1.03
    next_round: NextRound | None  # None: no further round is needed
    user_clock: UserClock
    counts: dict[str, dict[str, str | None]]  # arm -> source that checked its token counts -> None, or why it could not
    starts: Starts | None
    groups: dict[str, JudgedGroup]  # all groups, by name
    drafting: dict[str, Drafting]  # by arm
    acceptance_findings: list[AcceptanceFinding]
    gates: list[JudgedGate]


class Energy(TypedDict):
    """The energy of an arm, prefill included."""

    source: str | None  # what measured the power
    mean_w: float | None  # mean power while requests were answered, in W
    idle_w: float | None  # power with the engine loaded and no requests, in W
    j_per_output_token: float
    j_per_output_token_above_idle: float | None  # without the idle power
    kwh_per_million_output_tokens: float
    j_per_byte_of_text: float | None


class Money(TypedDict):
    """The price of a million tokens, and of a million bytes of text."""

    currency: str | None  # None: the price has no named currency
    price_per_hour: float  # of the whole machine
    per_million_output_alone: float  # the whole price charged to the output tokens
    per_million_bytes_of_text: float | None  # the whole price charged to the text
    per_million_input: float | None  # the part of the price before first tokens, see `cost.costs`
    per_million_output: float | None  # the rest of it


class Saving(TypedDict):
    """What speculation saves of the price of the machine, in its currency; negative: it costs more."""

    share: float
    """Fraction of the baseline's price per output token."""
    per_hour: float
    """Per hour in which the baseline works."""
    per_million_output: float  # per million output tokens
    said: str  # the saving as a sentence


class Bandwidth(TypedDict):
    """How much of the memory bandwidth decoding uses (`cost.bandwidth_share`)."""

    tok_s: float  # output tokens per second of one stream
    tokens_per_step: float
    steps_per_s: float
    bytes_per_step: float  # that a decode step reads
    bytes_s: float  # that decoding reads per second
    bandwidth_bytes_s: float  # by the data sheet
    share: float  # bytes_s / bandwidth_bytes_s
    limit_tok_s: float  # tokens per second of one stream that reads at the full bandwidth


class GpuMemory(TypedDict):
    """The memory of a GPU in bytes."""

    name: str | None
    used: int | None  # the peak, other programs included
    total: int | None


class Memory(TypedDict):
    """The memory of an arm in bytes."""

    planned: dict[str, float | None]  # on one device: weights, draft, kv, overhead, reserved
    told: dict[str, int]  # the figures in the engine's log (`cost.memory_in_log`)
    gpus: list[GpuMemory]  # as the GPUs showed it


class TokenCosts(TypedDict):
    """The cost of an arm's tokens and text."""

    energy: Energy | None
    money: Money | None
    why: list[str]  # the reasons for missing parts


class ArmCost(TokenCosts):
    """The cost of an arm."""

    power: Power | None
    bandwidth: Bandwidth | None
    memory: Memory
    ready_s: float | None  # from process start until the engine answers for the model, in seconds
    ready_at_most: bool  # True: ``ready_s`` is an upper limit


class CostRow(TypedDict):
    """A row of the cost table."""

    what: str  # the title
    unit: str | None
    baseline: float | None
    speculative: float | None
    note: str | None  # how the figure is meant
