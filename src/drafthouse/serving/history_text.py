"""The history of a box as a table: which server ran from when to when, and why it ended. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..core.plain_text import printable
from ..core.table import table
from .history import ENDED, REFUSED, ROLLED_BACK, SWITCHED, Event

_MOST_ROWS = 30
_HEAD = ["from", "until", "release", "profile", "arm", "engine", "why it ended"]


@dataclass(frozen=True)
class Span:
    """The time in which a server ran, or (``refused``) the moment of a change that failed."""

    since: float  # unix seconds
    until: float | None  # unix seconds; None: it still runs
    facts: Event  # with the server that ran, or that the change would have started
    why: str  # why it ended or was refused; "" while it runs
    refused: bool = False


def spans(history: Iterable[Event]) -> list[Span]:
    """The spans of a history, in the order in which they began."""
    result: list[Span] = []
    begun: Event | None = None  # the event with which the present server began
    for event in history:
        kind = event["event"]
        at = float(event["at"])
        if kind == REFUSED:
            result.append(Span(at, at, event, str(event.get("why") or ""), refused=True))
            continue
        if begun is not None:
            result.append(Span(float(begun["at"]), at, begun, _why(begun, event)))
        if kind == ENDED:
            begun = None
        elif kind == SWITCHED and begun:
            begun = {**begun, **event}  # the release goes on, with another arm
        else:
            begun = event
    if begun is not None:
        result.append(Span(float(begun["at"]), None, begun, ""))
    return sorted(result, key=lambda span: span.since)


def _why(begun: Event, event: Event) -> str:
    """The reason for which the server that began with ``begun`` ended with ``event``."""
    why = str(event.get("why") or "no reason was given")
    if event["event"] == ENDED:
        return why
    if event["event"] == ROLLED_BACK:
        return f"back to release {event.get('release')}: {why}"
    if event["event"] == SWITCHED:
        return f"to the {event.get('arm')} arm: {why}"
    if event.get("release") == begun.get("release") and event.get("arm") == begun.get("arm"):
        return f"it stopped and came back: {why}"
    return f"replaced by release {event.get('release')}: {why}"


def history_text(
    history: Sequence[Event], bad_lines: Sequence[int] = (), local: Callable[[float], time.struct_time] = time.localtime
) -> str:
    """The last `_MOST_ROWS` spans as a table, the newest first; ``bad_lines``: numbers of lines without an event."""
    text = "nothing has served here yet"
    rows = [_row(span, local) for span in reversed(spans(history)[-_MOST_ROWS:])]
    if rows:
        text = table(_HEAD, rows)
    if bad_lines:
        text += f"\n\nserved/history.jsonl: no event in line {', '.join(map(str, bad_lines))}; remove it"
    return text


def _row(span: Span, local: Callable[[float], time.struct_time]) -> list[str]:
    """The row of a span, with the columns `_HEAD`; ``local`` turns unix seconds into local time."""
    facts = span.facts
    engine = " ".join(map(str, filter(None, (facts.get("engine"), facts.get("version")))))
    if span.until is None:
        until = "serves"
    elif span.refused:
        until = "refused"
    else:
        until = _minute(span.until, local)
    names = (facts.get("release"), facts.get("profile"), facts.get("arm"), engine)
    cells = [_minute(span.since, local), until, *(str(name or "-") for name in names), span.why]
    return [printable(cell) for cell in cells]


def _minute(at: float, local: Callable[[float], time.struct_time]) -> str:
    return time.strftime("%Y-%m-%d %H:%M", local(at))
