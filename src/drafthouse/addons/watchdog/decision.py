"""Does speculation still pay on a box's real traffic, and what to do where it does not: the decisions. Pure.

Every few seconds the program on the box (`run.py`) hands in one `Window` of what the engine counted. Those of
the last ``look_s`` seconds are put together and held against the break-even (`break_even.py`): their **gain** is how
many times as fast as without drafting they came, by the measured cost of a drafted token at their load.

A decision is one of

- `hold`: nothing is to be done, and why;
- `off`: the gain was below ``off_below`` for ``patience_s`` seconds of drafting traffic;
- `trial`: speculation is off, and is tried again: because the load is one at which the acceptance seen before would
  pay, or because time went by, each time twice as long;
- `on`: a trial has shown that it pays, or (where speculation is only watched) that it does so again.

What keeps it calm: seconds below the bar are counted, and only a gain of ``on_above`` or more takes them back, so that
between the two bars nothing moves; a server that was changed stays as it is for ``dwell_s`` seconds, whatever comes, so
that there is at most one change in that time, a failed trial's own end included; too few drafts decide nothing.
Time is a clock that only the caller moves on, in seconds: a wall clock that is set shortens nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar, get_type_hints

from ...analysis.break_even import Counts, Point, break_even, cost_at, counts_of, gain_of

Kind = TypeVar("Kind")
HOLD, OFF, TRIAL, ON = "hold", "off", "trial", "on"
#: What is the case: speculation serves, does not, or is being tried again.
PHASES = (ON, OFF, TRIAL)


@dataclass(frozen=True)
class Rules:
    """When what is decided; times in seconds. ``off_below`` and ``on_above`` are gains (1: as fast as without)."""

    look_s: float = 600.0
    patience_s: float = 600.0
    dwell_s: float = 1800.0
    least_drafted: int = 1000
    off_below: float = 1.0
    on_above: float = 1.03
    trial_after_s: float = 21_600.0
    trial_at_most_s: float = 604_800.0


@dataclass(frozen=True)
class Window:
    """What an engine counted between two looks.

    ``drafts`` and ``tokens`` are None where it does not count them, ``load`` (requests under way at the look) too.
    ``missing`` says why nothing is known; ``restarted`` that it is not the engine of the look before.
    """

    seconds: float
    drafted: int = 0
    accepted: int = 0
    drafts: int | None = None
    tokens: int | None = None
    load: float | None = None
    missing: str = ""
    restarted: bool = False


@dataclass(frozen=True)
class Memory:
    """All that the machine knows; it goes to a file and comes back, so that a restart loses nothing.

    ``clock_s`` has run since the watch began, ``changed_s`` is its reading at the last change of the server. ``low_s``
    and ``high_s`` are the seconds of drafting traffic below the lower and above the upper bar. ``seen`` is the last
    traffic that was judged: [tokens, drafted, accepted].
    """

    phase: str = ON
    clock_s: float = 0.0
    changed_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    failed_trials: int = 0
    seen: tuple[float, float, float] | None = None
    windows: tuple[tuple[float, Window], ...] = ()


class Numbers(TypedDict, total=False):
    """What a decision rests on; times in seconds, rates from 0 to 1, ``load`` in requests under way."""

    phase: str
    seconds: float
    load: float | None
    load_measured: bool
    tokens: int
    drafted: int
    accepted: int
    acceptance: float | None
    break_even: float
    break_even_length: float
    gain: float
    low_s: float
    since_change_s: float
    failed_trials: int


@dataclass(frozen=True)
class Decision:
    """What is to be done; ``code`` names the reason for programs, ``why`` says it, ``numbers`` are what it rests on."""

    word: str
    code: str
    why: str
    numbers: Numbers = field(default_factory=Numbers)


def memory_of(data: Any) -> Memory:
    """The memory that was kept as JSON. Raises ValueError, TypeError or KeyError for what it has not written."""
    if data["phase"] not in PHASES:
        raise ValueError(f"no phase {data['phase']!r}")
    windows = tuple((float(at), as_declared(Window(**window))) for at, window in data["windows"])
    seen = None
    if data["seen"]:
        seen = tuple(map(float, data["seen"]))
        if len(seen) != 3:
            raise ValueError("no last traffic")
    return as_declared(Memory(**{**data, "windows": windows, "seen": seen}))


def as_declared(made: Kind) -> Kind:
    """``made``, whose numbers and texts are what they are declared as. Raises TypeError."""
    for name, kind in get_type_hints(type(made)).items():
        value = getattr(made, name)
        right = kind
        if kind in (float, float | None):
            right = kind | int
        plain = (str, bool, int, str | None, int | None, float | int, float | int | None)
        if right in plain and not isinstance(value, right):
            raise TypeError(f"{name}: {value!r}")
    return made


def decide(
    rules: Rules, points: Sequence[Point], tokens: int, memory: Memory, window: Window, *, sees: bool = False
) -> tuple[Memory, Decision]:
    """Take one window in, and return what is known now and what is to be done; ``tokens`` is K.

    ``sees``: the engine drafts on although speculation is held to be off (it is only watched), so that its counters
    say when it pays again and no trial is needed. What is decided changes nothing until `settled` is told of it.
    """
    memory = _taken_in(rules, memory, window)
    evidence = [one for _, one in memory.windows]
    counts, load = _together(evidence, tokens)
    numbers = _numbers(memory, points, tokens, evidence, counts, load)

    def answer(word: str, code: str, why: str) -> tuple[Memory, Decision]:
        return memory, Decision(word, code, why, numbers)

    left_s = rules.dwell_s - (memory.clock_s - memory.changed_s)
    if window.restarted:
        return answer(HOLD, "restarted", f"the server was restarted: no change for {rules.dwell_s:.0f} s")
    if window.missing:
        return answer(HOLD, "unknown", window.missing)
    if memory.phase == OFF and not sees:
        word, code, why = _while_off(rules, points, memory, evidence, load, left_s)
        return answer(word, code, why)
    if counts.drafted < rules.least_drafted:
        if not counts.drafted:
            memory = replace(memory, low_s=0.0, high_s=0.0)
        traffic = "no traffic"
        if counts.tokens:
            traffic = f"{counts.drafted:.0f} drafted tokens"
        return answer(HOLD, "few", f"{traffic} in {rules.look_s:.0f} s, {rules.least_drafted} needed for a decision")
    memory = _weighed(rules, memory, window, counts, numbers["gain"])
    numbers["low_s"] = round(memory.low_s, 1)
    return answer(*_while_drafting(rules, memory, numbers, counts.rate, left_s))


def _while_drafting(
    rules: Rules, memory: Memory, numbers: Numbers, acceptance: float, left_s: float
) -> tuple[str, str, str]:
    """Word, code and reason where drafts enough were counted; ``left_s``: so long the server is not changed."""
    gain = numbers["gain"]
    figures = f"the gain is {gain:.2f}, the acceptance rate {acceptance:.2f} (break-even: {numbers['break_even']:.2f})"
    if memory.phase == TRIAL:
        if left_s > 0:
            return HOLD, "dwell", f"{figures}; the trial continues for {left_s:.0f} s"
        if gain >= rules.on_above:
            return ON, "pays", f"{figures}: it pays again"
        return OFF, "trial_failed", f"{figures}: it does not pay yet"
    if memory.phase == ON and memory.low_s >= rules.patience_s and gain < rules.off_below:
        if left_s > 0:
            return HOLD, "dwell", f"{figures}; the server was changed recently: no change for {left_s:.0f} s more"
        return OFF, "does_not_pay", f"{figures} over {memory.low_s:.0f} s of traffic"
    if memory.phase == OFF and memory.high_s >= rules.patience_s and gain >= rules.on_above and left_s <= 0:
        return ON, "pays", f"{figures} over {memory.high_s:.0f} s of traffic"
    if gain >= rules.off_below:
        return HOLD, "pays", figures
    return HOLD, "patience", figures


def settled(memory: Memory, decision: Decision) -> Memory:
    """What is known once a decision was carried out: the server is another one from now on."""
    failed = memory.failed_trials
    if decision.word == ON:
        failed = 0
    elif decision.code == "trial_failed":
        failed += 1
    return changed(replace(memory, phase=decision.word, failed_trials=failed))


def changed(memory: Memory) -> Memory:
    """What is known after somebody changed the server, or a change failed: it is left alone for a while."""
    return replace(memory, changed_s=memory.clock_s, low_s=0.0, high_s=0.0, windows=())


# --- what was counted ---------------------------------------------------------------------------------


def _taken_in(rules: Rules, memory: Memory, window: Window) -> Memory:
    """The memory with one more window, without those that are too old."""
    memory = replace(memory, clock_s=memory.clock_s + max(0.0, window.seconds))
    if window.restarted:
        return changed(memory)
    since = memory.clock_s - rules.look_s
    kept = tuple((at, one) for at, one in memory.windows if at > since)
    if not window.missing:
        kept = (*kept, (memory.clock_s, window))
    return replace(memory, windows=kept)


def _together(windows: Sequence[Window], tokens: int) -> tuple[Counts, float | None]:
    """What some windows counted, and the mean load of those in which something ran."""
    drafted = accepted = 0.0
    loads = []
    for window in windows:
        drafted += window.drafted
        accepted += window.accepted
        if window.load:
            loads.append(window.load)
    drafts = _sum_if_all_known([window.drafts for window in windows])
    answered = _sum_if_all_known([window.tokens for window in windows])

    mean_load = None
    if loads:
        mean_load = math.fsum(loads) / len(loads)
    return counts_of(drafted, accepted, tokens, drafts, answered), mean_load


def _sum_if_all_known(values: Sequence[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _weighed(rules: Rules, memory: Memory, window: Window, counts: Counts, gain: float) -> Memory:
    """The memory with the window's seconds below the lower or above the upper bar."""
    seconds = 0.0
    if window.drafted:
        seconds = _drafting_s(memory.windows)
    low, high = memory.low_s, memory.high_s
    if gain < rules.off_below:
        low, high = low + seconds, 0.0
    if gain >= rules.on_above:
        low, high = 0.0, high + seconds
    return replace(memory, low_s=low, high_s=high, seen=(counts.tokens, counts.drafted, counts.accepted))


def _drafting_s(windows: Sequence[tuple[float, Window]]) -> float:
    """The seconds of the last window, in which drafts were counted, and of those in which they were made.

    Engines that count a request's drafts as it ends (llama.cpp) show them in one window, and nothing in those before,
    in which the request ran.
    """
    *before, (_, last) = windows
    seconds = [last.seconds]
    for _, earlier in reversed(before):
        if earlier.drafted or not earlier.load:
            break
        seconds.append(earlier.seconds)
    return math.fsum(seconds)


def _while_off(
    rules: Rules, points: Sequence[Point], memory: Memory, evidence: Sequence[Window], load: float | None, left_s: float
) -> tuple[str, str, str]:
    """Whether speculation is to be tried again; without it nothing is drafted, so that only this can tell."""
    if left_s > 0:
        return HOLD, "dwell", f"speculation stays off for {left_s:.0f} s more"
    away_s = memory.clock_s - memory.changed_s
    wait_s = min(rules.trial_after_s * 2.0**memory.failed_trials, rules.trial_at_most_s)
    if away_s >= wait_s:
        return TRIAL, "time", f"speculation has been off for {away_s:.0f} s: current traffic may draft better"
    busy_s = math.fsum(one.seconds for one in evidence if one.load)
    if memory.seen and load and busy_s >= rules.look_s / 2:
        gain = gain_of(Counts(*memory.seen), cost_at(points, load)[0])
        if gain >= rules.on_above:
            return (
                TRIAL,
                "load",
                f"at {load:.1f} running requests the last acceptance rate gives a gain of {gain:.2f}",
            )
    return HOLD, "off", f"speculation is off; it is tried again in {wait_s - away_s:.0f} s, or when the load falls"


def _numbers(
    memory: Memory,
    points: Sequence[Point],
    tokens: int,
    evidence: Sequence[Window],
    counts: Counts,
    load: float | None,
) -> Numbers:
    bar = break_even(points, max(1.0, load or 1.0), tokens)
    acceptance = None
    if counts.drafted:
        acceptance = round(counts.rate, 4)
    if load is not None:
        load = round(load, 2)
    return {
        "phase": memory.phase,
        "seconds": round(math.fsum(one.seconds for one in evidence), 1),
        "load": load,
        "load_measured": bar["measured"],
        "tokens": round(counts.tokens),
        "drafted": round(counts.drafted),
        "accepted": round(counts.accepted),
        "acceptance": acceptance,
        "break_even": round(bar["rate"], 4),
        "break_even_length": round(bar["length"], 3),
        "gain": round(gain_of(counts, bar["rate"]), 4),
        "low_s": round(memory.low_s, 1),
        "since_change_s": round(memory.clock_s - memory.changed_s, 1),
        "failed_trials": memory.failed_trials,
    }
