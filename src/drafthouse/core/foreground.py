"""A command in the foreground, and the signals that stop it: Ctrl-C, kill, a terminal that is closed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from .exit_codes import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A stopped Ansible says what it was at and leaves its jobs on the boxes; then it is asked less kindly.
KINDNESS_S = 10.0
LOOK_S = 0.1

Tell = Callable[[str], None]


class Child(Protocol):
    """What is needed of a running command."""

    def poll(self) -> int | None:
        """The exit status, None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send it a signal."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""


@dataclass
class Stop:
    """The signals that came. The first ends the command; what comes while it is cleaned up is told and passed over.

    Whoever wants out all the same sends one more: `passed_over` starts as true where the first of them is enough.
    """

    seen: list[int] = field(default_factory=list)
    ending: bool = False
    passed_over: bool = False
    tell: Tell = print
    warning: str = ""

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """Take a signal."""
        self.seen.append(number)
        if not self.ending:
            return
        if self.passed_over:
            raise KeyboardInterrupt
        self.passed_over = True
        self.tell(self.warning)

    @contextlib.contextmanager
    def heard(self) -> Iterator[Stop]:
        """Hear the signals inside the block."""
        with _handled_by(self):
            yield self


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let a hang-up or a termination end what is inside the block like Ctrl-C: what was begun is ended with it.

    Ctrl-C itself too: a shell has it ignored by what it starts in the background.
    """
    with _handled_by(_interrupt):
        try:
            yield
        except RuntimeError as error:
            # It came while a lock was waited for, which then complains that it is not held.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_until_stopped(
    child: Child,
    stop: Stop,
    stopping: Callable[[], None] = lambda: None,
    kindness_s: float = KINDNESS_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Wait for a command and return its exit status; once a signal came, call ``stopping`` and help it to its end."""
    while (status := child.poll()) is None and not stop.seen:
        sleep(LOOK_S)
    if not stop.seen:
        return status if status is not None and status >= 0 else INTERRUPTED
    stopping()
    # A terminal gives Ctrl-C to both, kill to us alone: a moment for the first, then it is passed on.
    for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if number is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
        until = clock() + (kindness_s if number else kindness_s / 5)
        while child.poll() is None and clock() < until:
            sleep(LOOK_S)
    child.wait()
    return INTERRUPTED
