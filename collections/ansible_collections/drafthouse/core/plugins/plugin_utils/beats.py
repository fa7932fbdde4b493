"""Signs of life (beats) of a run, from a process beside ansible-playbook that ends when ansible-playbook does."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

# Seconds after which a beat is given up; the next one follows.
HANGS_S = 60


def beat_until(ended: Callable[[], bool], beat: Callable[[], object]) -> None:
    """Call ``beat`` each time that ``ended`` is False, until it is True; ``ended`` also does the waiting in between.

    Call it in a process of its own: it leaves the terminal's session, and Ctrl-C and SIGTERM end it at once.
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
    """End a beat that hangs. Without this handler the alarm would end the process, and all further beats with it."""
    raise TimeoutError
