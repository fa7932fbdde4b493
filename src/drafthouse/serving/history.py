"""The history of a box (a host that serves): an append-only file with one JSON event per line, safe in a power cut.

An event says which server began or ended, and when. A server is one arm (baseline or speculative) of a release: a
resolved profile with its files (`releases.py`). Standard library only, because this file runs on the box.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..core.documents import BadDocument, json_of
from ..core.errors import one_problem
from ..core.files import replace_file, sync, text_in
from ..core.locks import locked_file
from ..core.schema import Findings, Map, Value, check

if TYPE_CHECKING:
    from typing import NotRequired

SERVED = "served"  # a server began
ENDED = "ended"  # the server ended, and none should run
REFUSED = "refused"  # a change of the server failed
ROLLED_BACK = "rolled_back"  # to an earlier release
SWITCHED = "switched"  # to the release's other arm
EVENTS = (SERVED, ENDED, REFUSED, ROLLED_BACK, SWITCHED)
# The file is cut to its last LINES lines when it has twice as many, so that it is rarely written anew.
LINES = 1000
# Size of a file without content that is deleted when the disk is full, so that a rollback can still write.
BALLAST_BYTES = 16 << 20
# The highest accepted time, in unix seconds: the year 5138. `time.localtime` fails for very large values.
_LATEST_S = 1e11
_EVENT = Map(
    {
        "event": Value(str, required=True, choices=EVENTS),
        "at": Value(float, required=True, low=0, high=_LATEST_S),
        # Each of these may be missing or null: lines of earlier versions lack some.
        **dict.fromkeys(("release", "profile", "arm", "why"), Value(str, null=True)),
    },
    others=True,
)


class ServerFacts(TypedDict, total=False):
    """The server that an event is about; None in lines of earlier versions, which lack a field."""

    release: str | None  # its id
    profile: str | None
    arm: str | None
    engine: str | None  # its id
    version: str | None  # of the engine


class Serving(ServerFacts):
    """A server that should be running, and the time at which it began to serve (``at``, unix seconds)."""

    at: float


class Event(Serving):
    """A line of the history. Only ``at`` and ``event`` (one of `EVENTS`) are in the lines of every version."""

    event: str
    why: NotRequired[str | None]  # the reason, for people


def served_folder(home: str | Path) -> Path:
    """The folder of the history and of the releases."""
    return Path(home) / "served"


def read_history(home: str | Path) -> list[Event]:
    """The valid events of the history, the oldest first; none if there is no file yet."""
    return [event for _, event in events_of(text_in(history_file(home))) if event is not None]


def history_file(home: str | Path) -> Path:
    """The path of the history."""
    return served_folder(home) / "history.jsonl"


def events_of(text: str) -> list[tuple[int, Event | None]]:
    """The line numbers (from 1) and events of a history; None for a line that is not a valid event.

    A last line without a newline is left out: a kill or a full disk interrupted its write.
    """
    events: list[tuple[int, Event | None]] = []
    for line_number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        if not line.strip():
            continue
        events.append((line_number, _parsed_event(line)))
    return events


def _parsed_event(line: str) -> Event | None:
    """The event in a line; None if it is not a valid one."""
    try:
        event: Event | None = json_of(line)
    except BadDocument:
        return None
    if not isinstance(event, dict) or not check(event, _EVENT, Findings("")):
        return None
    return event


def add_event(home: str | Path, event: str, **fields: object) -> None:
    """Append an event with the present time and sync it to disk. Raises DrafthouseError if it cannot be written."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is none of {', '.join(EVENTS)}")
    line = json.dumps({"at": round(time.time(), 3), "event": event, **fields}) + "\n"
    with history_lock(home):
        with_room(home, lambda: _append(history_file(home), line))


def _append(path: Path, line: str) -> None:
    """Add a line; an incomplete last line, or old lines if there are too many, are dropped with it."""
    text = path.read_bytes() if path.exists() else b""
    if text.count(b"\n") >= 2 * LINES:
        replace_file(path, _newest(text[: text.rfind(b"\n") + 1].splitlines(keepends=True)) + line.encode())
        return
    if text and not text.endswith(b"\n"):
        replace_file(path, text[: text.rfind(b"\n") + 1] + line.encode())
        return
    with path.open("ab") as stream:
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())
    sync(path.parent)


def _newest(lines: Sequence[bytes]) -> bytes:
    """The last `LINES` lines, preceded by the last line about a start or an end if that is older.

    Without that line, a server that has run unchanged for long would be forgotten.
    """
    kept = list(lines[-LINES:])
    for line in reversed(lines):
        event = next((event for _, event in events_of(line.decode("utf-8", "replace")) if event), None)
        if event and event["event"] in (SERVED, ROLLED_BACK, ENDED):
            if line not in kept:
                kept.insert(0, line)
            break
    return b"".join(kept)


def facts_of(event: ServerFacts) -> ServerFacts:
    """The server of an event, without the event's time and reason."""
    return {
        "release": event.get("release"), "profile": event.get("profile"), "arm": event.get("arm"),
        "engine": event.get("engine"), "version": event.get("version"),
    }  # fmt: skip


def server_after(history: Sequence[Event]) -> Serving | None:
    """The server that should be running after these events; None if there is none."""
    server: Serving | None = None
    for event in history:
        if event["event"] in (SERVED, ROLLED_BACK):
            server = {"at": event["at"], **facts_of(event)}
        elif event["event"] == SWITCHED and server:
            server = {**server, "arm": event.get("arm"), "at": event["at"]}
        elif event["event"] == ENDED:
            server = None
    return server


def make_room(home: str | Path) -> None:
    """Delete the ballast file, which frees `BALLAST_BYTES` on a full disk."""
    (served_folder(home) / "ballast").unlink(missing_ok=True)


def put_ballast(home: str | Path, size: int = BALLAST_BYTES) -> None:
    """Create the ballast file of ``size`` bytes, if that is at most a quarter of the free space.

    An error is ignored: the ballast is only a reserve.
    """
    path = served_folder(home) / "ballast"
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size == size:
            return
        if shutil.disk_usage(path.parent).free < 4 * size:
            return
        with path.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)


def with_room(home: str | Path, write: Callable[[], None]) -> None:
    """Call ``write``; if the disk is full, delete the ballast and call it a second time. Raises DrafthouseError."""
    try:
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            make_room(home)
            write()
    except OSError as error:
        raise one_problem(
            "file-unwritable",
            error.strerror or str(error),
            "a writable folder for this box's releases",
            "free some space, or connect as the user who set up this box",
            str(served_folder(home)),
        ) from error


@contextlib.contextmanager
def history_lock(home: str | Path) -> Iterator[None]:
    """Hold the lock of the folder `served`, so that a run and the watchdog do not write to it at the same time."""
    folder = served_folder(home)

    def make_lock_file() -> None:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        (folder / "lock").touch()

    with_room(home, make_lock_file)
    with locked_file(folder / "lock"):
        yield
