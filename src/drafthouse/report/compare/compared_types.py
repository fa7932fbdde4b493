"""Two reports side by side, as types: what `compare.py --format json` prints."""

from __future__ import annotations

from typing import Literal, TypedDict

from ...bench.stats import Gain
from ..report_types import Arm, LoadKind


class Differing(TypedDict):
    """A fact that differs and may."""

    what: str
    a: str | int | None
    b: str | int | None


class Side(TypedDict):
    """One of the two reports, and its verdict."""

    label: str
    folder: str
    date: str | None
    word: str | None
    earlier_rule: bool
    """Whether an earlier rule gave the word: it is shown, and compared with none."""
    sentence: str | None
    speedup: Gain | None
    control: Gain | None


MeasureName = Literal["tpot_ms", "ttft_ms"]


class MeasureRow(TypedDict):
    """A measure of a kind and arm: medians in ms, and how many times faster B is."""

    arm: Arm
    kind: str
    declared: bool
    measure: MeasureName
    unit: str
    a: float
    b: float
    change: Gain
    word: str


class SpeedupRow(TypedDict):
    """What speculation gained on a kind."""

    kind: str
    a: Gain | None
    b: Gain | None


class Numbers(TypedDict):
    """A number of both reports."""

    a: float | None
    b: float | None


class ComparedKind(TypedDict):
    """Until which load speculation pays on a kind, and the levels at which both can say whether it does."""

    kind: str
    a: LoadKind
    b: LoadKind
    levels: list[float]


class ComparedLevel(TypedDict):
    """The server's speed at a level, in tok/s."""

    kind: str
    level: float
    baseline: Numbers
    speculative: Numbers


class ComparedLoad(TypedDict):
    """The loads of two reports that have some."""

    unit: str
    kinds: list[ComparedKind]
    rows: list[ComparedLevel]


class ComparedGate(TypedDict):
    """A gate's words; None where a report has no such gate."""

    name: str
    title: str
    a: str | None
    b: str | None


class ComparedCost(TypedDict):
    """A row of cost that both have."""

    what: str
    unit: str | None
    baseline: Numbers
    speculative: Numbers


class Facts(TypedDict):
    """What two reports say."""

    schema: str
    a: Side
    b: Side
    differs: list[Differing]
    against: list[str]
    marks: list[str]
    rows: list[MeasureRow]
    speedups: list[SpeedupRow]
    acceptance: Numbers
    load: ComparedLoad | None
    gates: list[ComparedGate]
    cost: list[ComparedCost]
    threshold: float | None


class Comparison(Facts):
    """The same, judged: what is worse in B, what cannot be told, and how many rows could be judged."""

    regressions: list[str]
    unjudged: list[str]
    judged: int
