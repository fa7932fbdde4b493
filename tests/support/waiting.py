"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], object], what: str, seconds: float = 60.0, every: float = 0.05) -> float:
    """The seconds until something was true, asked again ``every`` so many seconds.

    AssertionError, which names ``what``, after ``seconds``.
    """
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"waited in vain for {what}: {seconds:.0f} s"
        time.sleep(every)
    return time.monotonic() - began
