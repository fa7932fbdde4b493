"""Decide whether a box should switch speculation off or on, from the engine's counters under real traffic. No I/O.

Every few seconds `run.py` passes one `Window` of counts. The windows of the last ``look_s`` seconds are summed. From
the sums and the measured cost of a draft token at that load (`break_even.py`) follows the **gain**: the speed as a
multiple of the speed without drafting.

A decision is one of

- `hold`: do nothing, with the reason;
- `off`: switch speculation off, because the gain was below the threshold ``off_below`` for ``patience_s`` seconds of
  drafting traffic, or because a trial failed;
- `trial`: switch speculation on to measure it again, because the earlier acceptance rate would pay at the present load,
  or because a waiting time is over, which doubles after each failed trial;
- `on`: a trial has shown that it pays, or (in the mode `report`) it pays again.

Three rules prevent frequent switching. Seconds below ``off_below`` are reset only by a gain of ``on_above`` or more.
A server that was changed is left alone for ``dwell_s`` seconds; a failed trial ends after that time too. Fewer than
``least_drafted`` draft tokens decide nothing. All times are on a clock in seconds that only the caller advances, so a
wall clock that is set has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar, get_type_hints

from ...analysis.break_even import Counts, Point, break_even, cost_at, counts_of, gain_of

Kind = TypeVar("Kind")
HOLD, OFF, TRIAL, ON = "hold", "off", "trial", "on"  # the words of a decision
#: The phases: the speculative arm serves, the baseline serves (speculation is off), or a trial runs.
PHASES = (ON, OFF, TRIAL)


@dataclass(frozen=True)
class Rules:
    """The settings of a decision (docs/watchdog.md); times in seconds."""

    look_s: float = 600.0  # windows of this time are summed
    patience_s: float = 600.0  # of drafting traffic with a low gain (or, in the mode `report`, a high one) to decide
    dwell_s: float = 1800.0  # a server that was changed is left alone; also the length of a trial
    least_drafted: int = 1000  # draft tokens in ``look_s``; fewer decide nothing
    off_below: float = 1.0  # a gain below it is low
    on_above: float = 1.03  # a gain of it or more is high
    trial_after_s: float = 21_600.0  # speculation is off before a trial; doubles after each failed trial
    trial_at_most_s: float = 604_800.0  # that time at most


@dataclass(frozen=True)
class Window:
    """The counts of an engine between two reads of its counters; None for what the engine does not count.

    With ``missing`` or ``restarted``, only ``seconds`` has a meaning besides.
    """

    seconds: float  # between the reads
    drafted: int = 0  # draft tokens
    accepted: int = 0  # of the draft tokens
    drafts: int | None = None  # drafts, each of up to K tokens
    tokens: int | None = None  # output tokens
    load: float | None = None  # running requests at the second read
    missing: str = ""  # why there are no counts; "": there are some
    restarted: bool = False  # True if the server is another one than at the first read


@dataclass(frozen=True)
class Memory:
    """The state of the decisions, which `journal.py` saves so that a restart loses nothing."""

    phase: str = ON  # one of `PHASES`
    clock_s: float = 0.0  # seconds since the watch began
    changed_s: float = 0.0  # the clock at the last change of the server
    low_s: float = 0.0  # seconds of drafting traffic with a gain below ``off_below``
    high_s: float = 0.0  # the same with a gain of ``on_above`` or more
    failed_trials: int = 0  # in a row
    # Output, draft and accepted tokens of the last windows whose gain was computed; None: none was computed yet.
    seen: tuple[float, float, float] | None = None
    windows: tuple[tuple[float, Window], ...] = ()  # (clock at its end, window)


class Numbers(TypedDict, total=False):
    """The figures of a decision, over the summed windows; times in seconds, rates are fractions."""

    phase: str  # before the decision
    seconds: float  # of all windows
    load: float | None  # the mean of running requests; None: no window had any
    load_measured: bool  # whether the costs were measured at this load, or at loads on both sides of it
    tokens: int  # output tokens
    drafted: int  # draft tokens
    accepted: int  # of the draft tokens
    acceptance: float | None  # None: nothing was drafted
    break_even: float  # the acceptance rate above which speculation pays
    break_even_length: float  # the same as a mean acceptance length
    gain: float  # the speed as a multiple of the speed without drafting
    low_s: float  # of `Memory`
    since_change_s: float  # since the last change of the server
    failed_trials: int  # in a row


@dataclass(frozen=True)
class Decision:
    """A decision and its reason."""

    word: str  # HOLD, OFF, TRIAL or ON
    code: str  # the reason, for programs
    why: str  # the reason, for people
    numbers: Numbers = field(default_factory=Numbers)


def memory_of(data: Any) -> Memory:
    """The memory from its JSON form (`dataclasses.asdict`). Raises ValueError, TypeError or KeyError if not valid."""
    if data["phase"] not in PHASES:
        raise ValueError(f"no phase {data['phase']!r}")
    windows = tuple((float(at), as_declared(Window(**window))) for at, window in data["windows"])
    seen = None
    if data["seen"]:
        seen = tuple(map(float, data["seen"]))
        if len(seen) != 3:
            raise ValueError("not three counts of the last traffic")
    return as_declared(Memory(**{**data, "windows": windows, "seen": seen}))


def as_declared(made: Kind) -> Kind:
    """The dataclass ``made`` itself. Raises TypeError if a number or a text in it is not of its declared type.

    Fields of other types, such as the windows, are checked where they are read.
    """
    for name, declared in get_type_hints(type(made)).items():
        value = getattr(made, name)
        accepted = declared
        if declared in (float, float | None):
            accepted = declared | int  # JSON writes 1.0 as 1
        checked_types = (str, bool, int, str | None, int | None, float | int, float | int | None)
        if accepted in checked_types and not isinstance(value, accepted):
            raise TypeError(f"{name}: {value!r}")
    return made


def decide(
    rules: Rules, points: Sequence[Point], tokens: int, memory: Memory, window: Window, *, always_drafts: bool = False
) -> tuple[Memory, Decision]:
    """Add a window to the memory, and return the new memory and the decision.

    The first of these that holds decides:

    1. the server was restarted, or the window has no counts: `hold`;
    2. the phase is OFF, and the engine drafts nothing meanwhile: `_while_off`;
    3. fewer than ``least_drafted`` draft tokens were counted in ``look_s``: `hold`;
    4. else `_while_drafting`, by the gain.

    ``points``: the measured costs by load. ``tokens``: K, the tokens of a draft at most. ``always_drafts``: the engine
    drafts in the phase OFF too (the mode `report` switches nothing), so no trial is needed. The caller applies a
    decision to the memory with `after_decision` once it has been carried out.
    """
    memory = _with_window(rules, memory, window)
    windows = [kept_window for _, kept_window in memory.windows]
    counts, load = _sums(windows, tokens)
    numbers = _numbers(memory=memory, points=points, tokens=tokens, windows=windows, counts=counts, load=load)

    def answer(word: str, code: str, why: str) -> tuple[Memory, Decision]:
        return memory, Decision(word, code, why, numbers)

    left_s = rules.dwell_s - (memory.clock_s - memory.changed_s)
    if window.restarted:
        return answer(HOLD, "restarted", f"the server was restarted: no change for {rules.dwell_s:.0f} s")
    if window.missing:
        return answer(HOLD, "unknown", window.missing)
    if memory.phase == OFF and not always_drafts:
        word, code, why = _while_off(
            rules=rules, points=points, memory=memory, windows=windows, load=load, left_s=left_s
        )
        return answer(word, code, why)
    if counts.drafted < rules.least_drafted:
        # Without any draft in ``look_s``, the seconds that were counted before belong to earlier traffic.
        if not counts.drafted:
            memory = replace(memory, low_s=0.0, high_s=0.0)
        traffic = "no traffic"
        if counts.tokens:
            traffic = f"{counts.drafted:.0f} drafted tokens"
        return answer(HOLD, "few", f"{traffic} in {rules.look_s:.0f} s, {rules.least_drafted} needed for a decision")
    memory = _with_gain(rules, memory, window, counts, numbers["gain"])
    numbers["low_s"] = round(memory.low_s, 1)
    return answer(*_while_drafting(rules, memory, numbers, counts.rate, left_s))


def _while_drafting(
    rules: Rules, memory: Memory, numbers: Numbers, acceptance: float, left_s: float
) -> tuple[str, str, str]:
    """Word, code and reason if enough drafts were counted.

    ``left_s``: the rest of ``dwell_s``, in which the server may not be changed; 0 or less once it is over. A trial
    decides at its end. Else speculation is switched off after ``patience_s`` of a low gain, if the present gain is low
    too. In the phase OFF (the mode `report` alone comes here) it is the reverse, without a trial.
    """
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


def after_decision(memory: Memory, decision: Decision) -> Memory:
    """The memory after a decision other than HOLD was carried out: its phase is the decision's word."""
    failed = memory.failed_trials
    if decision.word == ON:
        failed = 0
    elif decision.code == "trial_failed":
        failed += 1
    return after_change(replace(memory, phase=decision.word, failed_trials=failed))


def after_change(memory: Memory) -> Memory:
    """The memory after a change of the server, or a failed change: ``dwell_s`` begins, and all counts restart."""
    return replace(memory, changed_s=memory.clock_s, low_s=0.0, high_s=0.0, windows=())


def _with_window(rules: Rules, memory: Memory, window: Window) -> Memory:
    """The memory with one more window, and without those that are older than ``look_s``."""
    memory = replace(memory, clock_s=memory.clock_s + max(0.0, window.seconds))
    if window.restarted:
        return after_change(memory)
    since = memory.clock_s - rules.look_s
    kept = tuple((at, kept_window) for at, kept_window in memory.windows if at > since)
    if not window.missing:
        kept = (*kept, (memory.clock_s, window))
    return replace(memory, windows=kept)


def _sums(windows: Sequence[Window], tokens: int) -> tuple[Counts, float | None]:
    """The sums of the windows' counts, and their mean load, idle windows left out; None if all are idle."""
    drafted = accepted = 0.0
    loads = []
    for window in windows:
        drafted += window.drafted
        accepted += window.accepted
        if window.load:
            loads.append(window.load)
    drafts = _sum_if_all_known([window.drafts for window in windows])
    output_tokens = _sum_if_all_known([window.tokens for window in windows])

    mean_load = None
    if loads:
        mean_load = math.fsum(loads) / len(loads)
    return counts_of(drafted, accepted, tokens, drafts, output_tokens), mean_load


def _sum_if_all_known(values: Sequence[float | None]) -> float | None:
    """The sum; None if a value is None, because a sum of the others would be too small. 0 without values."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _with_gain(rules: Rules, memory: Memory, window: Window, counts: Counts, gain: float) -> Memory:
    """The memory with the window's drafting seconds added to ``low_s`` or ``high_s``, and with ``counts`` as seen.

    A low gain (below ``off_below``) resets ``high_s``, a high one (``on_above`` or more) ``low_s``. A gain between the
    two thresholds changes neither, so that it does not undo what was seen before.
    """
    seconds = 0.0
    if window.drafted:
        seconds = _drafting_s(memory.windows)
    low_s = memory.low_s
    high_s = memory.high_s
    if gain < rules.off_below:
        low_s += seconds
        high_s = 0.0
    if gain >= rules.on_above:
        low_s = 0.0
        high_s += seconds
    return replace(memory, low_s=low_s, high_s=high_s, seen=(counts.tokens, counts.drafted, counts.accepted))


def _drafting_s(windows: Sequence[tuple[float, Window]]) -> float:
    """The seconds of the last window and of the windows before it in which its drafts were made.

    An engine that counts a request's drafts when the request ends (llama.cpp) shows them all in one window, and none
    in the windows before, in which the request ran.
    """
    *before, (_, last) = windows
    seconds = [last.seconds]
    for _, earlier in reversed(before):
        if earlier.drafted or not earlier.load:
            break
        seconds.append(earlier.seconds)
    return math.fsum(seconds)


def _while_off(
    rules: Rules, points: Sequence[Point], memory: Memory, windows: Sequence[Window], load: float | None, left_s: float
) -> tuple[str, str, str]:
    """Word, code and reason while nothing is drafted: whether to try speculation again.

    1. Not within ``dwell_s`` of the last change, of which ``left_s`` seconds are left.
    2. Yes, if the waiting time is over.
    3. Yes, if the earlier acceptance rate would give a high gain at the present load, over at least half of ``look_s``.
    4. Else no.
    """
    if left_s > 0:
        return HOLD, "dwell", f"speculation stays off for {left_s:.0f} s more"
    off_s = memory.clock_s - memory.changed_s
    wait_s = min(rules.trial_after_s * 2.0**memory.failed_trials, rules.trial_at_most_s)
    if off_s >= wait_s:
        return TRIAL, "time", f"speculation has been off for {off_s:.0f} s: current traffic may draft better"
    # At least half of the time must be busy: a few busy windows say little about the load.
    busy_s = math.fsum(window.seconds for window in windows if window.load)
    if memory.seen and load and busy_s >= rules.look_s / 2:
        cost, _ = cost_at(points, load)
        gain = gain_of(Counts(*memory.seen), cost)
        if gain >= rules.on_above:
            return (
                TRIAL,
                "load",
                f"at {load:.1f} running requests the last acceptance rate gives a gain of {gain:.2f}",
            )
    return HOLD, "off", f"speculation is off; it is tried again in {wait_s - off_s:.0f} s, or when the load falls"


def _numbers(
    memory: Memory,
    points: Sequence[Point],
    tokens: int,
    windows: Sequence[Window],
    counts: Counts,
    load: float | None,
) -> Numbers:
    """The figures of a decision, rounded; ``windows``, ``counts`` and ``load`` are those of ``look_s``."""
    # Costs are measured from one request on; an idle or lightly loaded engine counts as one.
    threshold = break_even(points, max(1.0, load or 1.0), tokens)
    acceptance = None
    if counts.drafted:
        acceptance = round(counts.rate, 4)
    if load is not None:
        load = round(load, 2)
    return {
        "phase": memory.phase,
        "seconds": round(math.fsum(window.seconds for window in windows), 1),
        "load": load,
        "load_measured": threshold["measured"],
        "tokens": round(counts.tokens),
        "drafted": round(counts.drafted),
        "accepted": round(counts.accepted),
        "acceptance": acceptance,
        "break_even": round(threshold["rate"], 4),
        "break_even_length": round(threshold["length"], 3),
        # The break-even acceptance rate is the cost of a draft token in target steps (`break_even.py`).
        "gain": round(gain_of(counts, threshold["rate"]), 4),
        "low_s": round(memory.low_s, 1),
        "since_change_s": round(memory.clock_s - memory.changed_s, 1),
        "failed_trials": memory.failed_trials,
    }
