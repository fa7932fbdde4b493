"""Data types of the tuner: the search space, the task of a trial, and the outcome of a trial.

A trial starts a server once and sends it prompts. A candidate is a speculation setup (method, draft, K, options); K is
the largest number of draft tokens per step. The original profile is the user's profile, unchanged by the tuner. The
search ends with a final measurement of the winner on prompts that it did not use.
"""

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
    from drafthouse.prompts.suite_types import Gate

# How a trial can end. A candidate whose last trial did not end "ok" cannot win.
OK = "ok"
STOPPED = "stopped"  # the candidate was far too slow
FAILED = "failed"
TOO_LATE = "too late"  # the time of the trial or of the search was over
#: Which prompts a trial sends: those of the search, or those of the final measurement.
SEARCH, FINAL = "search", "final"
#: The arms: the server without speculation, and with it.
BASELINE, SPECULATIVE = "baseline", "speculative"

#: Tuned options as (path, value), the path as in a profile: `serve.threads`, `speculation.options.min_probability`.
Settings = tuple[tuple[str, Any], ...]


def at_path(path: str, value: object) -> Unchecked:
    """Nest ``value`` under a dotted path: `a.b` gives `{"a": {"b": value}}`."""
    *parents, last = path.split(".")
    data: Unchecked = {last: value}
    for parent in reversed(parents):
        data = {parent: data}
    return data


@dataclass(frozen=True)
class Candidate:
    """A speculation setup."""

    family: str  # `Family.id`, the method with its draft
    tokens: int  # K
    settings: Settings = ()  # options that differ from the profile's
    #: Changes to the profile, nested like a profile, that give this candidate.
    overrides: Unchecked = field(default_factory=dict, compare=False)

    @property
    def id(self) -> str:
        """The name in tables and in the journal, such as `draft-simple smollm2-135m-q4 K=4`."""
        tuned = "".join(f" {path.rsplit('.', 1)[-1]}={value}" for path, value in self.settings)
        return f"{self.family} K={self.tokens}{tuned}"


@dataclass(frozen=True)
class Family:
    """A method with its draft; its candidates differ in K, and in options if these are tuned."""

    id: str  # the method, and the draft if it has one
    tokens: tuple[int, ...]  # all K that may be tried, ascending
    first: int  # the K to try first
    overrides: Unchecked = field(default_factory=dict, compare=False)  # changes to the profile that give the family
    peak: int | None = None  # the K with the largest expected gain; None: not known

    def candidate(self, tokens: int, settings: Settings = ()) -> Candidate:
        """The candidate with K = ``tokens``."""
        overrides = laid_over(self.overrides, {"speculation": {"num_speculative_tokens": tokens}})
        for path, value in settings:
            overrides = laid_over(overrides, at_path(path, value))
        return Candidate(self.id, tokens, settings, overrides)

    def coarse_candidates(self) -> list[Candidate]:
        """The candidate at the first K, then powers of two, nearest to the expected peak (None: the first K) first."""
        powers = [k for k in self.tokens if k & (k - 1) == 0 and k != self.first]
        powers.sort(key=lambda k: (abs(math.log(k / (self.peak or self.first))), k))
        return [self.candidate(k) for k in (self.first, *powers)]


@dataclass(frozen=True)
class Space:
    """All that may be tried. The first family is the original profile's, and its ``first`` that profile's K."""

    families: tuple[Family, ...]  # in the order in which to try them
    prompts: int  # number of prompts for the search
    final_prompts: int  # number of answers per arm and round of the final measurement
    #: Mean output tokens of a final measurement answer over those of a search answer, by their limits.
    final_weight: float = 1.0
    first_prompts: int = 4  # number of prompts in the first, shortest trials
    #: Tunable options of the profile as (path, values); the search tries them on the fastest candidate.
    options: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    load: int = 0  # concurrent requests of the trials under load; 0: no such trials
    #: Methods and drafts of the catalogue that cannot be tried, each with the reason.
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def original(self) -> Candidate:
        """The original profile as a candidate."""
        return self.families[0].candidate(self.families[0].first)

    def family(self, name: str) -> Family:
        """The family called ``name``."""
        return next(family for family in self.families if family.id == name)


@dataclass(frozen=True)
class Task:
    """The work of one trial: start one arm of a candidate once and send it some prompts."""

    candidate: Candidate
    arm: str = SPECULATIVE
    part: str = SEARCH  # `SEARCH` or `FINAL`
    first: int = 0  # index of the first prompt of the part
    count: int = 0  # number of prompts; after the last prompt of the part continue at its first
    turn: int = 1  # counts the trials of this candidate from 1; in the final measurement it is the round
    #: The leader's TPOT in ms by prompt. A trial that is far slower ends early. Empty: it never does.
    reference: Mapping[str, float] = field(default_factory=dict, compare=False)
    #: Time limit of the trial in seconds, preparation and server start included.
    seconds: float = field(default=0.0, compare=False)
    attempt: int = 1  # 2 for a retry after a failure
    streams: int = 0  # concurrent requests; 0: as many as the profile's experiment

    @property
    def key(self) -> str:
        """A name that is unique within a search; the journal stores outcomes under it."""
        load = f" x{self.streams}" if self.streams else ""
        asked = f"{self.part} {self.first}+{self.count}{load}"
        return f"{self.candidate.id} | {self.arm} | {asked} | {self.turn}.{self.attempt}"


class Answer(TypedDict):
    """An answer as the gates, the checks of outputs, read it (`analysis/gates.py`)."""

    group: str  # the same for all answers
    prompt_id: str  # `paired_stats.pair_key`
    status: Status
    temperature: float
    text: str
    reasoning_text: str
    tool_calls: list[ToolCall] | None
    pieces: list[int]  # lengths of the streamed pieces in characters
    output_tokens: int | None
    http_status: int | None
    error: str | None
    finish_reason: str | None
    gate: Gate | None


class Facts(TypedDict, total=False):
    """Data of a trial beside its times; all of it is optional."""

    acceptance: Acceptance | None  # None: nothing was answered
    outputs: dict[str, str]  # fingerprint of each answer at temperature 0, by prompt
    drafted: bool  # True: the engine drafted a token
    output_tokens: int  # of all answers
    ended_unix_s: float  # epoch seconds of the end
    other_cpu_percent: float | None  # CPU use by other processes; None: not measured
    answers: list[Answer]  # at temperature 0, of the final measurement only


class TrialResult(Facts):
    """The result of `trial.measure_trial`, which runs on the host that serves."""

    schema: str  # `trial.SCHEMA`
    arm: str
    status: str  # how it ended: `OK`, `STOPPED`, `FAILED` or `TOO_LATE`
    why: str  # the reason of a failure or an early end; "" for others
    asked: int  # number of requests that ended, failed ones included
    failed: int  # number of them that failed
    measured_s: float  # from the first prompt to the last answer
    tpot_ms: dict[str, float]  # by prompt, as `paired_stats.pair_key` names it


@dataclass(frozen=True)
class Outcome:
    """The result of a trial, as the search and the journal keep it."""

    status: str  # how it ended: `OK`, `STOPPED`, `FAILED` or `TOO_LATE`
    tpot_ms: Mapping[str, float] = field(default_factory=dict)  # by prompt, as in `TrialResult`
    elapsed_s: float = 0.0  # wall-clock time of the whole trial; counts against the budget
    prepared_s: float = 0.0  # part of it: fetching weights and making environments, once per family
    measured_s: float = 0.0  # part of it: sending the prompts and receiving the answers
    why: str = ""  # reason for a failure or an early end
    facts: Facts = field(default_factory=Facts)

    @property
    def overhead_s(self) -> float:
        """Seconds that every trial pays for the server start and stop: all but preparation and prompts."""
        return max(0.0, self.elapsed_s - self.prepared_s - self.measured_s)


#: Starts a server and sends it the task's prompts. A failing engine is an outcome, not an exception.
Trial = Callable[[Task], Outcome]
