"""Progress of a long step: one JSON object a line in a file on the box; an action shows it while it grows.

A line is an `Event`; ``{"line": str}`` alone is a row that stays.
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
    """A sign of life: ``text``, or a ``line`` that stays, and what is known of how far it is.

    ``done`` and ``total`` are in ``unit``, ``rate`` is units/s. ``item`` names which of several things that go on at
    the same time it is about, ``phase`` the part of a measurement.
    """

    text: str
    line: str
    done: float
    total: float | None
    unit: str
    rate: float | None
    eta_s: float | None
    item: str
    phase: str


Tell = Callable[[Event], None]
"""Takes signs of life."""


class Progress:
    """Appends to the progress file, of each item at most once in ``every_s`` unless a line is important."""

    def __init__(self, path: str | None, every_s: float = 1.0) -> None:
        self._path = Path(path) if path else None
        self._every_s = every_s
        self._last: dict[object, float] = {}
        if self._path:
            # Beside it lies the module as Ansible has sent it, with its arguments in clear text, the hub's token among
            # them. It is loaded by now; a run that is killed, or fails elsewhere meanwhile, would leave it there.
            for sent in self._path.parent.glob("AnsiballZ_*.py"):
                sent.unlink(missing_ok=True)

    def __call__(self, event: Event, important: bool = False) -> None:
        """Write one event."""
        now, item = time.monotonic(), event.get("item")
        if self._path is None or (not important and now - self._last.get(item, float("-inf")) < self._every_s):
            return
        self._last[item] = now
        # A sign of life that cannot be written, on a full disk, is no reason to lose the work that it is of.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event) + "\n")


def shown(event: Event) -> str:
    """An event as the line that a person reads."""
    parts = [str(event.get("text", ""))]
    done, total = event.get("done"), event.get("total")
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
    """Lines of the file as one line for a person: the last event of each item.

    Events that are a ``line`` of their own (a row of a table that grows) come before it, every one of them.
    """
    last: dict[object, Event] = {}
    rows: list[str] = []
    for line in lines:
        event: Event = json.loads(line)
        if "line" in event:
            rows.append(str(event["line"]))
        else:
            last[event.get("item")] = event
    if len(last) > 1:
        last.pop(None, None)
    if together := "; ".join(map(shown, last.values())):
        rows.append(together)
    return "\n    ".join(map(printable, rows))
