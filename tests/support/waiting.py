"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until something is true. Raises AssertionError, which names ``what``, after so many seconds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
