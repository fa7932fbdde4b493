"""Stand-in until analysis has its types."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ..bench.stats import Estimated


class EqualOutputs(TypedDict):
    """EqualOutputs."""

    pairs: int
    equal: int
    share: float
    first_difference_characters: float | None


class Outputs(TypedDict):
    """Outputs."""

    speculative: EqualOutputs | None
    control: EqualOutputs | None


class JudgedGroup(TypedDict):
    """JudgedGroup."""

    speedup: Estimated | None
    control: Estimated | None
    outputs: Outputs
    declared: bool


class Scope(TypedDict):
    """Scope."""

    kinds: list[str]
    groups: list[str]
    concurrency: int | None
    rounds: int
    schedule: str | None


class GateSide(TypedDict):
    """GateSide."""

    said: str
    passed: int
    total: int
    examples: list[str]


class JudgedGate(TypedDict):
    """JudgedGate."""

    name: str
    title: str
    rule: str
    word: Literal["passed", "failed", "not measured", "no baseline"]
    said: str
    baseline: GateSide
    speculative: GateSide


class Judgement(TypedDict):
    """Judgement."""

    word: Literal["pays", "does not pay", "cannot say", "invalid"]
    wrong_output: bool
    sentence: str
    said: str
    reasons: list[str]
    warnings: list[str]
    threshold: float
    confidence: float
    scope: Scope
    synthetic: str | None
    speedup: Estimated | None
    control: Estimated | None
    outputs: Outputs
    user_clock: Any
    counts: dict[str, dict[str, str | None]]
    starts: Any
    groups: dict[str, JudgedGroup]
    drafting: Any
    gates: list[JudgedGate]


class CostRow(TypedDict):
    """CostRow."""

    what: str
    unit: str
    baseline: float | None
    speculative: float | None
    note: str


ArmCost = dict[str, Any]
