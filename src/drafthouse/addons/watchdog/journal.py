"""The watchdog's files on the box, in `watchdog/` of its home folder. Standard library only.

- `order.json`: the order, which is the settings and the measured costs; the Ansible role writes it;
- `state.json`: the state, which is replaced as a whole;
- `journal.jsonl`: the journal, with a line for each decision. A journal of more than `JOURNAL_BYTES` becomes
  `journal.1.jsonl`, and the older `journal.1.jsonl` is deleted.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ...core.documents import json_of
from ...core.files import replace_file
from ...core.places import ORDER
from .decision import Memory, Numbers, as_declared, memory_of

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.profiles.profile_types import WatchdogRules

FOLDER = "watchdog"  # in the box's home
STATE = "state.json"
JOURNAL = "journal.jsonl"
SCHEMA = "drafthouse.watchdog/1"  # of the state; a state with another is dropped
JOURNAL_BYTES = 4_000_000  # from which a new journal is begun; the two take about twice as much at most


class Order(TypedDict):
    """The watchdog's settings, the measured costs, and the places of its engine and of the gateway's door."""

    mode: str  # report (nothing is changed) or restart
    rules: WatchdogRules  # those of `decision.Rules` that the inventory sets
    points: list[dict[str, float]]  # the costs of a draft token by load, as in `break_even.Point`
    tokens: int  # K: draft tokens per step
    # Seconds:
    every_s: float  # between two reads of the counters
    drain_s: float  # that running requests may take to end before a change
    again_s: float  # before a change is tried again, doubled each time
    patience_s: float  # after which a waiting change is dropped
    profile: str
    runtime: str  # process or docker
    base_url: str  # of the engine
    model: str  # its name in the API
    key_file: str  # of the engine's API key; the file may be missing: no key then
    metrics_path: str  # of the engine's counters, below ``base_url``
    door: str  # the folder of `switch.Door`, '' without a gateway


class Clocks(TypedDict):
    """The machine's clocks in seconds (wall clock and time since boot), and the id of the boot."""

    wall: float
    up: float
    boot: str


class Wish(TypedDict):
    """A decision that waits for an idle moment of the engine; its fields are those of `decision.Decision`."""

    word: str
    code: str
    why: str
    # Only after an attempt that failed:
    not_before_s: NotRequired[float]  # the earliest time of the next attempt, on the clock of `decision.Memory`
    pause_s: NotRequired[float]  # seconds from the next attempt, if it fails too, to the one after it


class Change(TypedDict):
    """A change of the server that has begun."""

    to: str  # the decision's word: OFF, TRIAL or ON
    why: str  # the decision's reason


class LineBody(TypedDict):
    """A line of the journal without time, mode and arm."""

    decision: str  # word, code and reason, as in `decision.Decision`
    code: str
    why: str
    acts: NotRequired[bool]  # whether the decision leads to a change of the server
    numbers: NotRequired[Numbers]  # the figures of a decision
    seconds: NotRequired[float]  # that a change took


class Line(LineBody):
    """A line of the journal."""

    at: float  # unix seconds
    mode: str  # of the order
    arm: str | None  # that serves; None before the first look


@dataclass(frozen=True)
class State:
    """The state that a restart of the watchdog keeps; `write_state` dumps every field."""

    memory: Memory
    clock: Clocks  # at the last read of the counters
    arm: str | None = None  # of the server that was seen last; None before the first look
    started: float | None = None  # the start of that server in unix seconds; None: not known
    wish: Wish | None = None  # a decision that waits for an idle moment
    wish_s: float = 0.0  # since when the wish waits, on the clock of ``memory``
    under_way: Change | None = None  # a change that has begun and not ended
    failures: int = 0  # failed changes in a row
    told: Order | None = None  # the order at the last look; None before the first

    def with_(self, **fields: Any) -> State:
        """A copy with these fields replaced."""
        return replace(self, **fields)


def read_state(folder: Path) -> State | None:
    """The saved state; None if there is none or it is not valid, so that the watch begins anew."""
    try:
        data = json_of((folder / STATE).read_text("utf-8"))
        if data.pop("schema") != SCHEMA:
            return None
        state = as_declared(State(**{**data, "memory": memory_of(data["memory"])}))
        elapsed_s(state.clock, state.clock)  # raises KeyError or TypeError if a clock is missing or no number
        return state
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_state(folder: Path, state: State) -> None:
    """Replace the state file as a whole."""
    fields = {name: getattr(state, name) for name in State.__dataclass_fields__}
    text = json.dumps({"schema": SCHEMA, **fields, "memory": asdict(state.memory)})
    replace_file(folder / STATE, f"{text}\n")


def append_line(folder: Path, line: Line) -> None:
    """Add a line to the journal, and sync it to disk; a long journal is put aside before. Raises OSError."""
    journal = folder / JOURNAL
    if journal.exists() and journal.stat().st_size > JOURNAL_BYTES:
        journal.replace(journal.with_name("journal.1.jsonl"))
    handle = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        # A full disk may have left an incomplete last line: end it, so that only that line is lost.
        if size > 0 and os.pread(handle, 1, size - 1) != b"\n":
            stream.write(b"\n")
        stream.write(json.dumps(line).encode() + b"\n")
        stream.flush()
        os.fsync(handle)


def read_order(folder: Path) -> Order:
    """The order in ``folder``. Raises OSError or ValueError."""
    data: Order = json_of((folder / ORDER).read_text("utf-8"))
    return data


def elapsed_s(before: Clocks, now: Clocks) -> float:
    """The seconds between two readings of the machine's clocks, at least 0.

    The time since boot counts; across a reboot the wall clock does, although it may have been set.
    """
    if before.get("boot") == now["boot"]:
        return float(max(0.0, now["up"] - before["up"]))
    return float(max(0.0, now["wall"] - before["wall"]))
