"""A load ladder as types: `ladder.json`, its steps, and what all of its steps together say.

Files of earlier versions may hold less (`kept_shapes.py`): who reads such a file asks with ``get``.
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
    """What a step's requests say (`stats.step_numbers`): rates a second, latencies in ms."""

    duration_s: float
    short: bool
    num_prompts: int
    completed: int
    failed: int
    tail: int
    without_tpot: int
    mean_output_tokens: float | None
    output_throughput: float | None
    per_user_tok_s: float | None
    request_throughput: float | None
    goodput: float | None
    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread
    tpot_by_prompt: dict[str, list[float]]
    tpot_interval: Interval | None


class StepPlace(TypedDict):
    """Which step it is: requests at a time or a second, arm, round, and kind of work."""

    level: float
    arm: str
    round: int
    kind: str


class LadderStep(StepPlace, StepNumbers, Drafting):
    """One step of a ladder."""

    status: Literal["ok", "polluted", "broken", "incomplete"]
    ended_by: str
    started_unix_s: float
    restarted: bool
    unfinished: int
    late_ms: float | None
    foreign: Foreign | None
    power: Power | None
    gpus: list[GpuMeasured]
    machine: Between | None
    counters: CounterPair | None
    notes: list[str]


class Beside(TypedDict, total=False):
    """What was read beside a step, to be laid over it: notes are added, and a good step may become polluted."""

    notes: list[str]
    status: Literal["ok", "polluted"]
    power: Power
    gpus: list[GpuMeasured]


class Control(Gain):
    """The baseline's first good round over its second."""

    rounds: list[int]


class SettledLevel(TypedDict):
    """What the A/B said of a kind at one level."""

    level: float
    word: str
    speedup: Gain


class LevelVerdict(TypedDict):
    """One level of a crossover: ratios of the speculative arm over the baseline, but for ``control``."""

    level: float
    rounds: int
    throughput_ratio: float | None
    control: Control | None
    speedup: Gain
    corrected: Gain
    word: str
    settled: NotRequired[SettledLevel]


class LevelChange(TypedDict):
    """By which share the speed changes at a level."""

    level: float
    change: float


class MissingLevel(TypedDict):
    """A level without a good pair of steps, and why."""

    level: float
    why: str


class StartsSeen(TypedDict):
    """What starts of the servers alone do to a ratio, and in how many rounds that was seen."""

    sd: float
    rounds: int


class Crossing(TypedDict):
    """Where it pays, in the ladder's unit; None for an end that lies outside of the ladder."""

    pays_until: float | None
    reaches_top: bool
    pays_from: float | None
    interval: list[float | None] | None
    gaps: list[float]
    beyond: LevelChange | None
    at_the_top: NotRequired[LevelChange | None]


class Crossover(Crossing):
    """Up to which load speculation pays on one kind of work (`analysis/crossover.py`)."""

    word: str
    unit: str
    levels: list[LevelVerdict]
    planned: int
    confidence: float
    threshold: float
    prompts_needed: int
    prompts_needed_above: int
    starts: StartsSeen
    missing: list[MissingLevel]
    quoted: NotRequired[float]
    reasons: NotRequired[list[str]]
    sentence: NotRequired[str]


class Ladder(TypedDict):
    """`ladder.json`."""

    schema: str
    profile: str | None
    key: str
    load: str
    unit: str
    levels: list[float]
    limits: dict[str, float]
    rounds: int
    kinds: list[str]
    seconds: float
    narrow: float | None
    notes: list[str]
    steps: list[LadderStep]
    crossover: dict[str, Crossover] | None
