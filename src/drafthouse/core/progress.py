"""Progress of a long task on a box: a module appends JSON lines to a file, and an Ansible action shows them meanwhile.

A line is an `Event`. An event ``{"line": str}`` is a line of output that stays on the screen.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

from .format import shown_time
from .plain_text import printable


class Event(TypedDict, total=False):
    """A progress report: ``text``, or a ``line`` that stays on the screen, and how far the task is.

    None or no key: unknown.
    """

    text: str
    line: str
    done: float  # in ``unit``, as ``total``
    total: float | None
    unit: str  # "bytes", or what is counted
    rate: float | None  # units per second
    eta_s: float | None  # seconds left
    item: str  # one of several parallel tasks, such as a download; no key: the whole task
    phase: str  # the part of a measurement


Tell = Callable[[Event], None]
"""A function that receives progress events."""


class Progress:
    """Appends events to the progress file, of each item one in ``every_s`` seconds; important ones always.

    Without a file (``path`` None) events are dropped.
    """

    def __init__(self, path: str | None, every_s: float = 1.0) -> None:
        self._path = Path(path) if path else None
        self._every_s = every_s
        self._last: dict[object, float] = {}  # by item, when its last event was written
        if self._path:
            # Ansible's copy of the running module lies in the same folder. It holds the arguments in clear text, the
            # hub's token among them, and would stay there after a kill. It is loaded by now, so it is removed.
            for module_file in self._path.parent.glob("AnsiballZ_*.py"):
                module_file.unlink(missing_ok=True)

    def __call__(self, event: Event, important: bool = False) -> None:
        """Append one event."""
        now = time.monotonic()
        item = event.get("item")
        if self._path is None or (not important and now - self._last.get(item, float("-inf")) < self._every_s):
            return
        self._last[item] = now
        # The task must not fail because its progress cannot be written, for example to a full disk.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event) + "\n")


def shown(event: Event) -> str:
    """An event as one line of text."""
    parts = [str(event.get("text", ""))]
    done = event.get("done")
    total = event.get("total")
    if isinstance(done, (int, float)) and isinstance(total, (int, float)) and total:
        if event.get("unit") == "bytes":
            parts.append(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({done / total:.0%})")
        else:
            parts.append(f"{done:g} of {total:g} ({done / total:.0%})")
    rate = event.get("rate")
    if isinstance(rate, (int, float)) and event.get("unit") == "bytes":
        parts.append(f"{rate / 1e6:,.0f} MB/s")
    eta = event.get("eta_s")
    if isinstance(eta, (int, float)):
        parts.append(f"about {shown_time(eta)} left")
    return ", ".join(filter(None, parts))


def shown_together(lines: Iterable[str]) -> str:
    """JSON lines of the file as text: every ``line`` that stays, then the latest event of each item on one line.

    An event without an item is left out where there are events of items.
    """
    latest: dict[object, Event] = {}
    output: list[str] = []
    for line in lines:
        event: Event = json.loads(line)
        if "line" in event:
            output.append(str(event["line"]))
        else:
            latest[event.get("item")] = event
    if len(latest) > 1:
        latest.pop(None, None)  # the event of the whole task says less than those of its items
    if together := "; ".join(map(shown, latest.values())):
        output.append(together)
    return "\n    ".join(map(printable, output))
