"""Run a command in the foreground, and handle the signals that stop it: Ctrl-C, kill, a closed terminal."""

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
# After Ctrl-C, Ansible prints its state before it ends. After this time the next, stronger signal is sent.
GRACE_S = 10.0
POLL_S = 0.1

Tell = Callable[[str], None]  # shows a line to the user


class Child(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    def poll(self) -> int | None:
        """The exit status of the process, negative for a signal; None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit status."""


@dataclass
class Stop:
    """The signals received so far, and the handler that records them. The first one ends the command.

    While the caller cleans up, which it says in ``ending``, the next signal prints a warning and the one after it ends
    the cleanup too.
    """

    received: list[int] = field(default_factory=list)  # signal numbers, in order
    ending: bool = False  # the caller cleans up
    warned: bool = False  # the warning was printed
    tell: Tell = print
    warning: str = ""

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """Record a signal. Raises KeyboardInterrupt for one that comes during cleanup, after the warning."""
        self.received.append(number)
        if not self.ending:
            return
        if self.warned:
            raise KeyboardInterrupt
        self.warned = True
        self.tell(self.warning)

    @contextlib.contextmanager
    def handling_signals(self) -> Iterator[Stop]:
        """Record the signals that arrive inside the block; afterwards the previous handlers are back."""
        with _handled_by(self):
            yield self


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle `SIGNALS` by ``handler`` inside the block; afterwards the previous handlers are back."""
    previous = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous_handler in previous.items():
            signal.signal(number, previous_handler)


@contextlib.contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block for each of `SIGNALS`, so that its `finally` clauses run.

    SIGINT is set too: a shell makes the commands that it starts in the background ignore it.
    """
    with _handled_by(_interrupt):
        try:
            yield
        except RuntimeError as error:
            # The signal arrived while a lock was acquired: releasing it then raises "un-acquired lock".
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run_until_stopped(
    child: Child,
    stop: Stop,
    on_stop: Callable[[], None] = lambda: None,
    grace_s: float = GRACE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The exit status of a command; INTERRUPTED (130) if a signal ended it, or if this process got one.

    In the latter case ``on_stop`` is called, then the command is ended: after a moment by Ctrl-C, SIGTERM and SIGKILL,
    each after another ``grace_s`` seconds.
    """
    while (status := child.poll()) is None and not stop.received:
        sleep(POLL_S)
    if not stop.received:
        # A negative status: a signal ended the command.
        return status if status is not None and status >= 0 else INTERRUPTED
    on_stop()
    # A terminal sends Ctrl-C to the command too, `kill` does not: wait a moment, then send it.
    for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if number is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
        until = clock() + (grace_s if number else grace_s / 5)  # None: no signal yet, the terminal may have sent one
        while child.poll() is None and clock() < until:
            sleep(POLL_S)
    child.wait()
    return INTERRUPTED
