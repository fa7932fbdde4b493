"""A command around which rented boxes are ended: always, when it went well, or never, whatever stops it.

Ctrl-C, a signal, a failed command and a lost network are all ways to come to the end. Only kill -9 is none: then the
box's own watch over its deadline is left, and `make destroy`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from .problems import HouseError, Problem
from .vast_client import KeyRefused, VastClient, VastError
from .vast_destroy import CONSOLE, StillBilling, end
from .vast_ledger import Rental, rentals

POLICIES = ("always", "on-success", "never")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
# Where the playbook writes which hosts it works on (the callback `drafthouse.core.house`).
RUN_FILE = "DRAFTHOUSE_RUN_FILE"
# A stopped Ansible says what it was at and leaves its jobs on the boxes; then it is asked less kindly.
KINDNESS_S = 10.0
# How long a network that is gone is waited for, and how often it is tried.
PATIENCE_S, AGAIN_S = 600.0, 20.0
_LOOK_S = 0.1

Tell = Callable[[str], None]


class Child(Protocol):
    """What is needed of a running command."""

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""

    def send_signal(self, number: int) -> None:
        """Send it a signal."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""


@dataclass
class Stop:
    """The signals that came; the first ends the command, one that comes while boxes are ended is told and passed over.

    Whoever wants out all the same sends one more.
    """

    seen: list[int] = field(default_factory=list)
    ending: bool = False
    passed_over: bool = False
    tell: Tell = print

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """Take a signal."""
        self.seen.append(number)
        if not self.ending:
            return
        if self.passed_over:
            raise KeyboardInterrupt
        self.passed_over = True
        self.tell("the boxes are being ended; once more leaves them as they are, billing")

    @contextlib.contextmanager
    def heard(self) -> Iterator[Stop]:
        """Hear the signals inside the block."""
        before = {number: signal.signal(number, self) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class World:
    """What a run needs from outside; the tests bring their own."""

    client: VastClient
    ledger: Path
    tell: Tell = print
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_s: float = PATIENCE_S
    start: Callable[..., Child] = subprocess.Popen


def around(
    command: Sequence[str],
    policy: str,
    world: World,
    environment: Mapping[str, str],
    hosts: Callable[[], Collection[str] | None],
) -> int:
    """Run ``command``, end what it was about as ``policy`` says, and return the exit status.

    ``hosts`` names the instances that the command worked on, None where that is not known: then all of ours are meant.
    Raises StillBilling, or another HouseError, where something of ours may go on costing money that should not.
    """
    stop = Stop(tell=world.tell)
    with stop.heard():
        try:
            child = world.start(list(command), env=dict(environment))
        except OSError as error:
            raise HouseError(
                Problem(
                    f"{command[0]}: {error.strerror or error}",
                    "a command that can be run",
                    "correct it; nothing was run and nothing ended (make destroy ARGS=--list shows what bills)",
                )
            ) from error
        status = _played(child, stop, world)
        stop.ending = True
        _after(status, policy, world, hosts())
    return status


def _played(child: Child, stop: Stop, world: World) -> int:
    """Wait for the command; once a signal came, for its end, and help it along."""
    while (status := child.poll()) is None and not stop.seen:
        world.sleep(_LOOK_S)
    if not stop.seen:
        return status if status is not None and status >= 0 else INTERRUPTED
    # A terminal gives Ctrl-C to both, kill to us alone: a moment for the first, then it is passed on.
    for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if number is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
        until = world.clock() + (KINDNESS_S if number else KINDNESS_S / 5)
        while child.poll() is None and world.clock() < until:
            world.sleep(_LOOK_S)
    child.wait()
    return INTERRUPTED


def _after(status: int, policy: str, world: World, hosts: Collection[str] | None) -> None:
    open_ones = [one for one in rentals(world.ledger).values() if one.is_open]
    meant = [one for one in open_ones if hosts is None or str(one.instance) in hosts]
    if not meant:
        return
    if policy == "never" or (policy == "on-success" and status != 0):
        world.tell("\n".join(left_as_they_are(meant, policy)))
        return
    _ended(meant, world)


def left_as_they_are(meant: Collection[Rental], policy: str) -> list[str]:
    """Return what to say of boxes that go on: what each costs, until when, and what ends it."""
    why = "" if policy == "never" else " (the run did not succeed)"
    lines = [f"DESTROY={policy}{why}: still billing"]
    for one in meant:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.deadline))
        price = one.facts.get("price_per_hour", "?")
        name = one.instance or one.label
        lines.append(f"  instance {name}, ${price} an hour, its deadline {until}: make destroy ARGS={name}")
    return lines


def _ended(meant: Sequence[Rental], world: World) -> None:
    """End them, and try again for as long as vast.ai does not answer as it should."""
    until = world.clock() + world.patience_s
    try:
        while True:
            try:
                end(world.client, world.ledger, only={one.id for one in meant}, why="the run is over", tell=world.tell)
                return
            except VastError as error:
                problem: HouseError = error
                if isinstance(error, KeyRefused):
                    raise StillBilling([*problem.problems, by_the_ledger(world.ledger, meant)]) from None
            except StillBilling as error:
                # What another key rented does not come back by waiting.
                if not any("still bills" in one.found for one in error.problems):
                    raise
                problem = error
            if world.clock() >= until:
                raise StillBilling([*problem.problems, by_the_ledger(world.ledger, meant)]) from None
            world.tell(f"not ended yet ({problem.problems[0].found.splitlines()[0]}); again in {AGAIN_S:.0f} s")
            world.sleep(AGAIN_S)
    except KeyboardInterrupt:
        raise StillBilling(by_the_ledger(world.ledger, meant)) from None


def by_the_ledger(ledger: Path, meant: Collection[Rental]) -> Problem:
    """Return what to say of rentals that could not be looked after: those that are open in the ledger."""
    known = rentals(ledger)
    left = [known[one.id] for one in meant if one.id in known and known[one.id].is_open]
    numbers = ", ".join(
        f"{one.instance or one.label} (${one.facts.get('price_per_hour', '?')} an hour)" for one in left
    )
    return Problem(
        f"by the ledger these may still bill: {numbers or 'none'}",
        "nothing of ours billing",
        f"make destroy, as soon as vast.ai answers; or end them by hand at {CONSOLE}",
        str(ledger),
    )


def fate_of(client: VastClient, number: int) -> str:
    """Return in words what vast.ai says of an instance that does not answer."""
    try:
        row = client.instance(number)
    except HouseError as error:
        return f"vast.ai could not be asked ({error.problems[0].found.splitlines()[0]})"
    return words_of(row, number)


def words_of(row: Mapping[str, Any] | None, number: int) -> str:
    """Return the same of what it answered."""
    if row is None:
        return "it is gone at vast.ai, and bills nothing"
    status = row.get("actual_status") or "being made"
    said = str(row.get("status_msg") or "").strip().splitlines()
    text = f"vast.ai says '{status}'" + (f" ({said[0][:120]})" if said else "")
    what = "its disk still bills" if status in ("exited", "stopped") else "it still bills"
    return f"{text}; {what}: make destroy ARGS={number}"
