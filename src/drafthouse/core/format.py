"""Format numbers, counts and times as text, in one way for verdicts, the terminal, Markdown and HTML.

In the examples below, x stands for the times sign and a hyphen between numbers for the dash of `TIMES` and `DASH`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

# An en dash and a times sign, as escapes, because the linter takes the characters themselves for a hyphen and an x.
DASH, TIMES = "\u2013", "\u00d7"
#: The text of an unknown value.
NOTHING = DASH


def number(value: float | None, digits: int = 3) -> str:
    """A number with about ``digits`` significant digits and no exponent: 0.123, 12.3, 1,234; a dash for None.

    It has at most ``digits`` decimal places: 0.0123 becomes 0.012. Digits before the point are never rounded away.
    """
    if value is None:
        return NOTHING
    size = abs(value)
    places = 0
    while size < 10 ** (digits - 1) and places < digits:
        size *= 10
        places += 1
    return f"{value:,.{places}f}"


def whole(value: float | None) -> str:
    """A whole number: ``9,600``; a dash for None."""
    return NOTHING if value is None else f"{value:,.0f}"


def times(value: float | None, digits: int = 2) -> str:
    """A ratio: ``2.31x``; a dash for None."""
    return NOTHING if value is None else f"{value:.{digits}f}{TIMES}"


def span(estimate: Mapping[str, Any] | None, digits: int = 2) -> str:
    """The interval of an estimate (keys ``low`` and ``high``): ``2.05-2.60``; a dash for None."""
    return NOTHING if not estimate else f"{estimate['low']:.{digits}f}{DASH}{estimate['high']:.{digits}f}"


def times_span(estimate: Mapping[str, Any] | None, digits: int = 2) -> str:
    """A speed-up (key ``gain``) and its interval: ``2.31x (2.05-2.60)``; a dash for None."""
    return NOTHING if not estimate else f"{times(estimate['gain'], digits)} ({span(estimate, digits)})"


def number_span(estimate: Mapping[str, Any] | None) -> str:
    """A median and its interval: ``41.9 (40.2-43.0)``; a dash for None."""
    if not estimate:
        return NOTHING
    return f"{number(estimate['median'])} ({number(estimate['low'])}{DASH}{number(estimate['high'])})"


def percent(fraction: float | None) -> str:
    """A fraction as per cent: 0.921 becomes ``92.1 %``; a dash for None."""
    return NOTHING if fraction is None else f"{100 * fraction:.1f} %"


def accepted(acceptance: Mapping[str, Any]) -> str:
    """The key ``rate`` of an acceptance as per cent: ``92.1 %``, or ``92.1 % (repeats itself)``.

    The mark (key ``repeats``) is for answers that repeat themselves: such text is easy to guess, which raises the rate.
    """
    shown = percent(acceptance["rate"])
    if acceptance.get("repeats") and shown != NOTHING:
        return f"{shown} (repeats itself)"
    return shown


def shown_level(level: float) -> str:
    """A load level, in concurrent requests or requests per second: 8, 0.5."""
    return f"{level:g}"


def shown_time(seconds: float) -> str:
    """A duration given in seconds: up to 99 in seconds (90 s) or minutes (12 min), above that 2 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def shown_bytes(size: int) -> str:
    """A number of bytes in MB or GB (powers of 10): 12.3 MB, 1,234.5 GB."""
    if size >= 1e9:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.1f} MB"


def at_a_time(concurrency: object) -> str:
    """A concurrency in words: ``one request at a time``, ``8 requests at a time``; None is an unknown one."""
    if concurrency is None:
        return "at a load that is not known"
    if concurrency == 1:
        return "one request at a time"
    return f"{concurrency} requests at a time"


def count(n: int, noun: str) -> str:
    """A count with its noun: ``1 prompt``, ``6 prompts``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def listing(words: Sequence[str]) -> str:
    """Words as a list in a sentence: ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def first_names(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and an ellipsis where there are more: ``a, b, c, …``."""
    if len(names) > most:
        names = [*names[:most], "…"]
    return ", ".join(names)


def folder_date(date: str) -> str:
    """The date of a result (in vLLM's format, or ISO 8601) as a folder's name: ``20261121-111600``.

    A date in another format becomes a safe name as it is, an empty one "undated".
    """
    # The first 19 characters: without fractions of a second and the time zone.
    for form in ("%Y%m%d-%H%M%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"):
        try:
            return datetime.strptime(date[:19].strip(), form).strftime("%Y%m%d-%H%M%S")
        except ValueError:
            continue
    return name_of(date) or "undated"


def name_of(text: str) -> str:
    """``text`` as a safe name of a file or folder: no separators, no leading dot."""
    return re.sub(r"[^0-9A-Za-z._-]+", "-", text).strip("-.")


def shown_date(date: str) -> str:
    """The date of a result to the minute: ``2026-11-21 11:16``; an unknown format is returned unchanged."""
    try:
        return datetime.strptime(folder_date(date), "%Y%m%d-%H%M%S").strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return date
