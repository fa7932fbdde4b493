"""How long to wait before the next try, and when to stop trying. Pure, but for the clock that dates are held to."""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

# Worth another try: told to come later, or a server that has trouble of its own (RFC 9110, RFC 6585).
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})


@dataclass(frozen=True)
class Patience:
    """``tries`` in a row without progress; pauses double from ``first_s`` to ``longest_s`` (seconds).

    A server that asks for a longer pause gets it, up to ``longest_wait_s``: beyond that a run only costs money.
    """

    tries: int = 6
    first_s: float = 1.0
    longest_s: float = 30.0
    longest_wait_s: float = 600.0

    def pause(self, failed: int, asked_s: float | None = None) -> float | None:
        """The seconds to wait after ``failed`` tries in a row, or None when that was the last one.

        ``asked_s`` is what the server asked for (Retry-After).
        """
        if failed >= self.tries or (asked_s is not None and asked_s > self.longest_wait_s):
            return None
        return max(min(self.first_s * 2.0 ** (failed - 1), self.longest_s), asked_s or 0.0)


def asked_to_wait(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds for which an answer asks to send no further request; None where it names none.

    ``Retry-After`` holds seconds or a date (RFC 9110, 10.2.3). The hub also says when its window ends:
    ``RateLimit: "api";r=0;t=55`` (huggingface_hub's parse_ratelimit_headers), which counts where nothing is left.
    """
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    retry_after = lowered.get("retry-after", "")
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    if retry_after:
        try:
            then = email.utils.parsedate_to_datetime(retry_after).timestamp()
        except (TypeError, ValueError, OverflowError):
            return None
        if now is None:
            now = time.time()
        return max(0.0, then - now)
    window = [part.strip() for part in lowered.get("ratelimit", "").split(";")]
    ends = next((part[2:] for part in window if part.startswith("t=")), "")
    if "r=0" in window and ends.isdigit():
        return float(ends)
    return None


class Brake:
    """One pause for all streams: a server that says "later" to one of them means all of them."""

    def __init__(self) -> None:
        self._until = 0.0
        self._lock = threading.Lock()

    def hold(self, seconds: float) -> None:
        """Let nobody pass for ``seconds``."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)

    def left(self) -> float:
        """The seconds for which nobody passes."""
        with self._lock:
            return max(0.0, self._until - time.monotonic())
