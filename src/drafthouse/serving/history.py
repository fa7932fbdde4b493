"""What served on a box, event by event: an append-only file that survives a power cut. Standard library only."""

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
from ..core.locks import held
from ..core.schema import Findings, Map, Value, check

if TYPE_CHECKING:
    from typing import NotRequired

SERVED, ENDED, REFUSED, ROLLED_BACK, SWITCHED = EVENTS = ("served", "ended", "refused", "rolled_back", "switched")


# Lines of history that are kept at least; it is cut when it has twice as many.
LINES = 1000


# Room that is given back when the disk is full: without it the last good server could not come back.
BALLAST_BYTES = 16 << 20


# Seconds since 1970 that a calendar has a date for.
_LATEST = 1e11


_EVENT = Map(
    {
        "event": Value(str, required=True, choices=EVENTS),
        "at": Value(float, required=True, low=0, high=_LATEST),
        **dict.fromkeys(("release", "profile", "arm", "why"), Value(str, null=True)),
    },
    others=True,
)


class ServerFacts(TypedDict, total=False):
    """Which server it is, in the words of an event."""

    release: str | None
    profile: str | None
    arm: str | None
    engine: str | None
    version: str | None


class Serving(ServerFacts):
    """What serves, and since when (``at``, unix seconds)."""

    at: float


class Event(Serving):
    """A line of the history. Programs of earlier versions may have written less beside ``at`` and ``event``."""

    event: str
    why: NotRequired[str | None]


def served_folder(home: str | Path) -> Path:
    """The folder of history and releases."""
    return Path(home) / "served"


def read_history(home: str | Path) -> list[Event]:
    """The events, the oldest first, without what is no event; none where there is no history yet."""
    return [event for _, event in events_of(text_in(history_file(home))) if event is not None]


def history_file(home: str | Path) -> Path:
    """Where the history lies."""
    return served_folder(home) / "history.jsonl"


def events_of(text: str) -> list[tuple[int, Event | None]]:
    """The number of each line of a history with its event, None where it is none.

    A last line without its end is what a kill or a full disk leaves of a line: it never came to be.
    """
    found: list[tuple[int, Event | None]] = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        if not line.strip():
            continue
        found.append((number, _event_of(line)))
    return found


def _event_of(line: str) -> Event | None:
    try:
        event: Event | None = json_of(line)
    except BadDocument:
        return None
    if not isinstance(event, dict) or not check(event, _EVENT, Findings("")):
        return None
    return event


def add_event(home: str | Path, event: str, **fields: object) -> None:
    """Add an event of this moment, on the disk when this returns. Raises DrafthouseError where it cannot be written."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is none of {', '.join(EVENTS)}")
    line = json.dumps({"at": round(time.time(), 3), "event": event, **fields}) + "\n"
    with locked(home):
        with_room(home, lambda: _append(history_file(home), line))


def _append(path: Path, line: str) -> None:
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
    """The last lines of a history, and before them the one that says what serves, however old it is."""
    kept = list(lines[-LINES:])
    for line in reversed(lines):
        event = next((event for _, event in events_of(line.decode("utf-8", "replace")) if event), None)
        if event and event["event"] in (SERVED, ROLLED_BACK, ENDED):
            if line not in kept:
                kept.insert(0, line)
            break
    return b"".join(kept)


def facts_of(event: ServerFacts) -> ServerFacts:
    """Which server it is that an event is about, without when and why."""
    return {
        "release": event.get("release"), "profile": event.get("profile"), "arm": event.get("arm"),
        "engine": event.get("engine"), "version": event.get("version"),
    }  # fmt: skip


def serving(history: Sequence[Event]) -> Serving | None:
    """What should serve after these events."""
    now: Serving | None = None
    for event in history:
        if event["event"] in (SERVED, ROLLED_BACK):
            now = {"at": event["at"], **facts_of(event)}
        elif event["event"] == SWITCHED and now:
            now = {**now, "arm": event.get("arm"), "at": event["at"]}
        elif event["event"] == ENDED:
            now = None
    return now


def make_room(home: str | Path) -> None:
    """Give back what was put aside for a full disk."""
    (served_folder(home) / "ballast").unlink(missing_ok=True)


def put_ballast(home: str | Path, size: int = BALLAST_BYTES) -> None:
    """Put room aside for the day when the disk is full; nothing happens where it is full already."""
    path = served_folder(home) / "ballast"
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size == size:
            return
        if shutil.disk_usage(path.parent).free < 4 * size:
            return
        with path.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)


def with_room(home: str | Path, write: Callable[[], None]) -> None:
    """Write; where the disk is full, once more with the room that was put aside. Raises DrafthouseError."""
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
def locked(home: str | Path) -> Iterator[None]:
    """Keep other writers away: a run, and what watches on the box."""
    folder = served_folder(home)

    def made() -> None:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        (folder / "lock").touch()

    with_room(home, made)
    with held(folder / "lock"):
        yield
