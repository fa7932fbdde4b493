"""Types of a comparison of two reports, A and B, which `drafthouse compare --format json` prints."""

from __future__ import annotations

from typing import Literal, TypedDict

from ...bench.stats import Gain
from ..report_types import Arm, LoadKind


class Differing(TypedDict):
    """A fact that differs between the reports, as part of what is compared."""

    what: str
    a: str | int | None
    b: str | int | None


class Side(TypedDict):
    """A report of the comparison, and its verdict; None for what an old report does not have."""

    label: str  # profile, host and time
    folder: str
    date: str | None
    word: str | None  # the verdict's
    earlier_rule: bool  # True if an earlier version of the rule gave the word, which is then shown but not compared
    sentence: str | None
    speedup: Gain | None
    control: Gain | None  # the baseline against itself


MeasureName = Literal["tpot_ms", "ttft_ms"]


class MeasureRow(TypedDict):
    """A measure of an arm on a kind of prompt, in both reports."""

    arm: Arm
    kind: str
    declared: bool  # True if the verdict covers the kind
    measure: MeasureName
    unit: str
    a: float  # median, as the next one
    b: float
    change: Gain  # A's time over B's: above 1 B is faster
    word: str  # what the change means, see the words of `diff.py`


class SpeedupRow(TypedDict):
    """The speed-up by speculation on a kind of prompt, in each report."""

    kind: str
    a: Gain | None
    b: Gain | None


class Numbers(TypedDict):
    """A number in each report."""

    a: float | None
    b: float | None


class ComparedKind(TypedDict):
    """The loads up to which speculation pays on a kind, and the levels at which both reports have a speed-up."""

    kind: str
    a: LoadKind
    b: LoadKind
    levels: list[float]  # ascending, in the unit of the load sweep


class ComparedLevel(TypedDict):
    """The server's speed at a load level, in tok/s."""

    kind: str
    level: float
    baseline: Numbers
    speculative: Numbers


class ComparedLoad(TypedDict):
    """The loads of two reports that both have a load sweep; levels are in ``unit``."""

    unit: str
    kinds: list[ComparedKind]
    rows: list[ComparedLevel]


class ComparedGate(TypedDict):
    """The words of a gate (a check of the outputs); None if a report does not have that gate."""

    name: str
    title: str
    a: str | None
    b: str | None


class ComparedCost(TypedDict):
    """A row of the cost table that both reports have."""

    what: str
    unit: str | None
    baseline: Numbers
    speculative: Numbers


class Facts(TypedDict):
    """Two reports side by side."""

    schema: str
    a: Side
    b: Side
    differs: list[Differing]  # the subject of the comparison
    against: list[str]  # why they are not comparable
    marks: list[str]  # what weakens the comparison
    rows: list[MeasureRow]
    speedups: list[SpeedupRow]
    acceptance: Numbers  # rates, as fractions
    load: ComparedLoad | None  # None: a report has no load sweep
    gates: list[ComparedGate]
    cost: list[ComparedCost]
    threshold: float | None  # a fraction; None: do not look for regressions


class Comparison(Facts):
    """`Facts` with a judgement."""

    regressions: list[str]  # what is worse in B
    unjudged: list[str]  # what A shows and B neither confirms nor refutes
    judged: int  # number of rows of declared kinds with enough prompts for a word
