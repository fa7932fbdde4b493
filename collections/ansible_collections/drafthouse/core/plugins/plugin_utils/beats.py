"""Signs of life of a run, from a process beside ansible-playbook: they end with it, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

# A beat that takes longer is given up; the next one follows.
HANGS_S = 60


def beat_until(ended: Callable[[], bool], beat: Callable[[], object]) -> None:
    """Beat whenever ``ended``, which waits, says that the run goes on; return when it has ended.

    For a process of its own: it leaves the terminal's session, and Ctrl-C and SIGTERM end it at once.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, _too_late)
    while not ended():
        with contextlib.suppress(Exception):  # a connection that is lost may come back
            signal.alarm(HANGS_S)
            try:
                beat()
            finally:
                signal.alarm(0)


def _too_late(*_: object) -> None:
    """End a beat that hangs; without a handler the alarm would end the process, and with it all beats to come."""
    raise TimeoutError
