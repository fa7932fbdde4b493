"""The words of the tuner: what may be tried, what one trial is asked to do, and what it brings back. Plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from ..profiles.overrides import laid_over

if TYPE_CHECKING:
    from drafthouse.bench.outcome import Status
    from drafthouse.bench.result_types import Acceptance, ToolCall
    from drafthouse.profiles.profile_types import Unchecked

#: How a trial can end. Only "ok" is ever a winner.
OK, STOPPED, FAILED, TOO_LATE = "ok", "stopped", "failed", "too late"
#: Which prompts a trial asks: those of the search, or those that the search never sees.
SEARCH, FINAL = "search", "final"
BASELINE, SPECULATIVE = "baseline", "speculative"

Settings = tuple[tuple[str, Any], ...]
"""Tuned options as (path, value), the path as in a profile: `serve.threads`, `speculation.options.min_probability`."""


def at_path(path: str, value: object) -> Unchecked:
    """``value`` under a dotted path: `a.b` gives `{"a": {"b": value}}`."""
    *parents, last = path.split(".")
    data: Unchecked = {last: value}
    for parent in reversed(parents):
        data = {parent: data}
    return data


@dataclass(frozen=True)
class Candidate:
    """One way to speculate: a method with its draft, K drafted tokens, and tuned options."""

    family: str
    tokens: int
    settings: Settings = ()
    overrides: Unchecked = field(default_factory=dict, compare=False)
    """What is laid over the profile to get it."""

    @property
    def id(self) -> str:
        """Its name in tables and in the journal: `draft-simple smollm2-135m-q4 K=4`."""
        tuned = "".join(f" {path.rsplit('.', 1)[-1]}={value}" for path, value in self.settings)
        return f"{self.family} K={self.tokens}{tuned}"


@dataclass(frozen=True)
class Family:
    """Candidates that differ in K alone. ``first`` is the K to begin with, ``peak`` the one expected to gain most."""

    id: str
    tokens: tuple[int, ...]
    """Every K that may be tried, ascending."""
    first: int
    overrides: Unchecked = field(default_factory=dict, compare=False)
    peak: int | None = None

    def candidate(self, tokens: int, settings: Settings = ()) -> Candidate:
        """The candidate with K = ``tokens``."""
        overrides = laid_over(self.overrides, {"speculation": {"num_speculative_tokens": tokens}})
        for path, value in settings:
            overrides = laid_over(overrides, at_path(path, value))
        return Candidate(self.id, tokens, settings, overrides)

    def row(self) -> list[Candidate]:
        """The first K, and the powers of two that may be tried, those nearest to the expected peak first."""
        powers = [k for k in self.tokens if k & (k - 1) == 0 and k != self.first]
        powers.sort(key=lambda k: (abs(math.log(k / (self.peak or self.first))), k))
        return [self.candidate(k) for k in (self.first, *powers)]


@dataclass(frozen=True)
class Space:
    """All that may be tried. The first family is the profile's own, and its ``first`` the profile's own K."""

    families: tuple[Family, ...]
    prompts: int
    """How many prompts the search has."""
    final_prompts: int
    """How many answers the re-measurement of one arm takes."""
    final_weight: float = 1.0
    """The work of one of those answers over the work of one of the search's (by output tokens)."""
    first_prompts: int = 4
    """How many prompts the first, shortest run asks."""
    options: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """What the profile marks as tunable, as (path, values); the values are tried on the leader."""
    left_out: tuple[tuple[str, str], ...] = ()
    """What of the catalogue cannot be tried, and why."""

    @property
    def own(self) -> Candidate:
        """The profile as it stands."""
        return self.families[0].candidate(self.families[0].first)

    def family(self, name: str) -> Family:
        """The family called ``name``."""
        return next(family for family in self.families if family.id == name)


@dataclass(frozen=True)
class Task:
    """What one trial does: start one arm of one candidate once, and ask it some prompts."""

    candidate: Candidate
    arm: str = SPECULATIVE
    part: str = SEARCH
    first: int = 0
    count: int = 0
    """Prompts ``first`` to ``first + count`` of the part, counted on from its beginning where it ends."""
    turn: int = 1
    """Which start of this candidate it is, from 1."""
    reference: Mapping[str, float] = field(default_factory=dict, compare=False)
    """TPOT in ms of the leader on these prompts: a trial that is far behind it ends early. Empty: never."""
    seconds: float = field(default=0.0, compare=False)
    """The trial ends within this time, its preparation and start included."""
    attempt: int = 1
    """2 where the engine died in the first one."""

    @property
    def key(self) -> str:
        """What tells it from every other task of a search; the journal keeps outcomes by it."""
        return f"{self.candidate.id} | {self.arm} | {self.part} {self.first}+{self.count} | {self.turn}.{self.attempt}"


class Answer(TypedDict):
    """What the outputs gate reads of an answer (`analysis/output_equality.py`), beside its round."""

    group: str
    prompt_id: str
    status: Status
    temperature: float
    text: str
    reasoning_text: str
    tool_calls: list[ToolCall] | None
    pieces: list[int]
    output_tokens: int | None


class Facts(TypedDict, total=False):
    """What is kept beside a trial's times; ``outputs`` are fingerprints of the answers at temperature 0, by prompt."""

    acceptance: Acceptance | None
    outputs: dict[str, str]
    drafted: bool
    output_tokens: int
    ended_unix_s: float
    other_cpu_percent: float | None
    answers: list[Answer]


class TrialResult(Facts):
    """What a trial on the box answers (`trial.measure_trial`)."""

    schema: str
    arm: str
    status: str
    why: str
    asked: int
    failed: int
    measured_s: float
    tpot_ms: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """What a trial brought: times in seconds, TPOT in ms for each prompt that was answered."""

    status: str
    tpot_ms: Mapping[str, float] = field(default_factory=dict)
    elapsed_s: float = 0.0
    """All of it, on the wall clock: what it takes from the budget."""
    prepared_s: float = 0.0
    """Of that, fetching weights and making environments, which happens once."""
    measured_s: float = 0.0
    """Of that, asking the prompts."""
    why: str = ""
    """Why it did not end well, or ended early."""
    facts: Facts = field(default_factory=Facts)

    @property
    def overhead_s(self) -> float:
        """What starting costs each time: all but preparing and asking."""
        return max(0.0, self.elapsed_s - self.prepared_s - self.measured_s)


Trial = Callable[[Task], Outcome]
"""Whatever starts an engine and asks it. Never raises for an engine that fails: that is an outcome."""
