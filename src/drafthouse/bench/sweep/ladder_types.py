"""Types of `ladder.json`: a load sweep (ladder), its steps at rising load levels, and the crossover computed from them.

Files of earlier versions may lack keys (`kept_shapes.py`), so code that reads files uses ``get``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from ..result_types import Drafting
from ..stats import Gain

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.bench.machine_types import Between, Foreign, GpuMeasured
    from drafthouse.bench.result_types import CounterPair, Power
    from drafthouse.bench.stats import Interval


class Spread(TypedDict):
    """Where values lie, in their own unit; None where there are none."""

    median: float | None
    p90: float | None
    p99: float | None


class StepNumbers(TypedDict):
    """The numbers of a step, explained at `stats.step_numbers`; rates are per second, latencies in ms."""

    duration_s: float  # of the window of full load, to which the rates refer
    short: bool  # True if that window was shorter than an answer, and was extended
    num_prompts: int  # ended requests
    completed: int  # of these, the complete answers
    failed: int  # of these, the others
    tail: int  # complete answers mostly outside the window of full load
    without_tpot: int  # complete answers without a TPOT
    mean_output_tokens: float | None  # per complete answer; None without any
    output_throughput: float | None  # output tokens of all requests; this and the rates below: None without answers
    per_user_tok_s: float | None  # output tokens of one request: 1000 / median TPOT
    request_throughput: float | None
    goodput: float | None  # requests within all limits; None also without limits
    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread
    tpot_by_prompt: dict[str, list[float]]  # by prompt id
    tpot_interval: Interval | None  # of the median TPOT; None without values


class StepPlace(TypedDict):
    """Identifies a step."""

    level: float  # concurrent requests, or requests per second
    arm: str  # the server: baseline or speculative
    round: int
    kind: str


class LadderStep(StepPlace, StepNumbers, Drafting):
    """One step of a ladder: one arm at one level with one prompt kind in one round."""

    status: Literal["ok", "polluted", "broken", "incomplete"]
    ended_by: str  # why no further request was sent, see `text.ENDED`
    started_unix_s: float
    restarted: bool  # True if the server was restarted after this step
    unfinished: int  # requests that were cancelled
    late_ms: float | None  # p99 of the delay of sending; None for a closed loop
    foreign: Foreign | None  # this and the next four: None or [] if they were not read
    power: Power | None
    gpus: list[GpuMeasured]
    machine: Between | None
    counters: CounterPair | None
    notes: list[str]  # sentences for people about the step


class StepReadings(TypedDict, total=False):
    """Readings taken during a step, to be merged into it (`step_notes.merge_readings`)."""

    notes: list[str]
    status: Literal["ok", "polluted"]
    power: Power
    gpus: list[GpuMeasured]


class Control(Gain):
    """The baseline compared with itself, its first good round over its second: an estimate of the noise."""

    rounds: list[int]  # the two rounds


class SettledLevel(TypedDict):
    """The verdict of the experiment's paired rounds on a kind at one level."""

    level: float
    word: str  # the verdict's
    speedup: Gain


class LevelVerdict(TypedDict):
    """One level of a crossover. Ratios are speculative over baseline, except ``control``."""

    level: float
    rounds: int  # with a usable pair of steps
    throughput_ratio: float | None  # of all output tokens per second; None: not known
    control: Control | None  # None: the baseline has one good round
    speedup: Gain
    corrected: Gain  # the speed-up with a wider interval, which allows for the number of levels
    word: str  # pays, costs or unclear
    settled: NotRequired[SettledLevel]  # the experiment's verdict on this level, which the word follows


class LevelChange(TypedDict):
    """By which share the speed changes at a level."""

    level: float
    change: float


class MissingLevel(TypedDict):
    """A level without a usable pair of steps, and the reason."""

    level: float
    why: str


class StartsSeen(TypedDict):
    """The standard deviation that server starts alone cause in a ratio, estimated from ``rounds`` rounds."""

    sd: float  # a fraction
    rounds: int


class Crossing(TypedDict):
    """The load levels between which speculation pays; None for an end outside the ladder's levels."""

    pays_until: float | None  # None also: speculation pays at no level
    reaches_top: bool  # True if it pays up to the highest level
    pays_from: float | None  # None: it pays at the lowest level already, or at none
    interval: list[float | None] | None  # of pays_until
    gaps: list[float]  # levels between paying ones that do not pay
    beyond: LevelChange | None  # the first higher level at which speculation costs
    at_the_top: NotRequired[LevelChange | None]  # the last one


class Crossover(Crossing):
    """The load up to which speculation pays for one prompt kind (`analysis/crossover.py`)."""

    word: str  # pays, does not pay or cannot say
    unit: str  # of the levels, in words
    levels: list[LevelVerdict]  # with a usable pair of steps
    planned: int  # number of levels, also without a usable pair
    confidence: float  # of the intervals
    threshold: float  # the speed-up above which speculation pays
    prompts_needed: int  # the fewest for a claim
    prompts_needed_above: int  # the same since rule 2 of the verdict
    starts: StartsSeen
    missing: list[MissingLevel]
    quoted: NotRequired[float]  # the level that the sentence is about
    reasons: NotRequired[list[str]]  # why nothing is claimed
    sentence: NotRequired[str]


class Ladder(TypedDict):
    """The content of `ladder.json`; ``crossover`` is by prompt kind, None before it is computed."""

    schema: str
    profile: str | None  # None: measured without a profile
    key: str  # hash of the settings; a file with another key is not continued
    load: str  # "closed" or "open", see `level.LoadOptions`
    unit: str  # of the levels, in words
    levels: list[float]
    limits: dict[str, float]  # in ms by latency, of a request that counts as goodput
    rounds: int  # planned
    kinds: list[str]  # prompt kinds, possibly behind a context
    seconds: float  # the longest duration of a step
    narrow: float | None  # the precision that ends a step earlier; None: only the time does
    notes: list[str]  # sentences for people about the whole ladder
    steps: list[LadderStep]
    crossover: dict[str, Crossover] | None
