"""The watchdog's files on the box: its order, its state, its journal. Standard library only.

`watchdog/order.json` is what the role wrote, `state.json` what the program knows (whole or not at all: a new one takes
the old one's place), `journal.jsonl` a line for each decision. The journal has a bound: where it is full it becomes
`journal.1.jsonl`, and the one of before goes.
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

FOLDER = "watchdog"  # below our home on the box
STATE, JOURNAL = "state.json", "journal.jsonl"
SCHEMA = "drafthouse.watchdog/1"
JOURNAL_BYTES = 4_000_000


class Order(TypedDict):
    """What the watchdog is told: how it decides, and where its engine and the gateway's door are; times in seconds."""

    mode: str
    rules: WatchdogRules
    points: list[dict[str, float]]
    tokens: int
    every_s: float
    drain_s: float
    again_s: float
    patience_s: float
    profile: str
    runtime: str
    base_url: str
    model: str
    key_file: str
    metrics_path: str
    door: str


class Clocks(TypedDict):
    """The machine's clocks in seconds: the wall's, since its start, and which start that was."""

    wall: float
    up: float
    boot: str


class Wish(TypedDict):
    """A decision that waits; tried again not before a reading of the memory's clock, with twice the pause."""

    word: str
    code: str
    why: str
    not_before_s: NotRequired[float]
    pause_s: NotRequired[float]


class Change(TypedDict):
    """A change that was begun."""

    to: str
    why: str


class Said(TypedDict):
    """A line of the journal, without its head."""

    decision: str
    code: str
    why: str
    acts: NotRequired[bool]
    numbers: NotRequired[Numbers]
    seconds: NotRequired[float]


class Line(Said):
    """A line of the journal."""

    at: float
    mode: str
    arm: str | None


@dataclass(frozen=True)
class State:
    """What outlives the program. ``clock``: the machine's clocks when it was written; ``told``: the order gone by.

    ``arm`` and ``started`` (epoch seconds) are the server that was seen last. ``wish`` is a decision that waits for a
    quiet moment, since ``wish_s`` of the memory's clock. ``under_way`` is a change that was begun.
    ``failures``: changes in a row that came to nothing.
    """

    memory: Memory
    clock: Clocks
    arm: str | None = None
    started: float | None = None
    wish: Wish | None = None
    wish_s: float = 0.0
    under_way: Change | None = None
    failures: int = 0
    told: Order | None = None

    def with_(self, **fields: Any) -> State:
        """Return it with other fields."""
        return replace(self, **fields)


def read_state(folder: Path) -> State | None:
    """The state, None where there is none or it cannot be read: then the watch begins anew."""
    try:
        data = json_of((folder / STATE).read_text("utf-8"))
        if data.pop("schema") != SCHEMA:
            return None
        state = as_declared(State(**{**data, "memory": memory_of(data["memory"])}))
        elapsed(state.clock, state.clock)
        return state
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_state(folder: Path, state: State) -> None:
    """Write the state, whole or not at all."""
    fields = {name: getattr(state, name) for name in State.__dataclass_fields__}
    text = json.dumps({"schema": SCHEMA, **fields, "memory": asdict(state.memory)})
    replace_file(folder / STATE, f"{text}\n")


def note(folder: Path, line: Line) -> None:
    """Add a line to the journal; it is on the disk when this returns."""
    journal = folder / JOURNAL
    if journal.exists() and journal.stat().st_size > JOURNAL_BYTES:
        journal.replace(journal.with_name("journal.1.jsonl"))
    handle = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "a+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        # What a full disk cut off must not take the next line with it.
        cut = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        stream.write(b"\n" * cut + json.dumps(line).encode() + b"\n")
        stream.flush()
        os.fsync(handle)


def read_order(folder: Path) -> Order:
    """What the role wrote. Raises OSError or ValueError."""
    data: Order = json_of((folder / ORDER).read_text("utf-8"))
    return data


def elapsed(before: Clocks, now: Clocks) -> float:
    """The seconds between two readings of the machine's clocks.

    By the clock that only runs forward; over a restart of the machine by the wall clock, which may have been set: it
    then counts for nothing below 0.
    """
    if before.get("boot") == now["boot"]:
        return float(max(0.0, now["up"] - before["up"]))
    return float(max(0.0, now["wall"] - before["wall"]))
