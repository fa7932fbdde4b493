"""When to repeat a failed request: how long to wait, and when to give up."""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

# HTTP statuses that may pass: the server asks to come back later, or has an error of its own (RFC 9110, RFC 6585; those
# from 520 on are Cloudflare's).
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524})


@dataclass(frozen=True)
class Patience:
    """How often to try without progress, and the pauses between, which double."""

    tries: int = 6  # in a row
    first_s: float = 1.0  # the first pause
    longest_s: float = 30.0  # no pause of our own is longer; one that the server asks for may be
    longest_wait_s: float = 600.0  # a server that asks for more gets no further request

    def pause(self, failed: int, asked_s: float | None = None) -> float | None:
        """The seconds to wait after ``failed`` tries in a row (1 or more); None to give up.

        ``asked_s`` is the pause that the server asked for (`asked_to_wait`); None: it asked for none.
        """
        if failed >= self.tries or (asked_s is not None and asked_s > self.longest_wait_s):
            return None
        return max(min(self.first_s * 2.0 ** (failed - 1), self.longest_s), asked_s or 0.0)


def asked_to_wait(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The pause (s) that a response's headers ask for before the next request; None if they name none.

    ``Retry-After`` counts before the other header. It holds seconds or a date (RFC 9110, 10.2.3), which is compared
    with ``now`` (unix seconds; None: this machine's clock). Hugging Face also sends ``RateLimit: "api";r=0;t=55`` (see
    parse_ratelimit_headers in huggingface_hub): requests left, here 0, and seconds until there are more.
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
    fields = [field.strip() for field in lowered.get("ratelimit", "").split(";")]
    reset_s = next((field[2:] for field in fields if field.startswith("t=")), "")
    if "r=0" in fields and reset_s.isdigit():
        return float(reset_s)
    return None


class Brake:
    """A pause that all parallel downloads share: a server that limits one of them limits all of them."""

    def __init__(self) -> None:
        self._until = 0.0
        self._lock = threading.Lock()

    def hold(self, seconds: float) -> None:
        """Start a pause of ``seconds``, unless a longer one is running."""
        with self._lock:
            self._until = max(self._until, time.monotonic() + seconds)

    def left(self) -> float:
        """The seconds that are left of the pause; 0 without one."""
        with self._lock:
            return max(0.0, self._until - time.monotonic())
