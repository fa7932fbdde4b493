"""A command around which rented boxes are ended: always, when it went well, or never, whatever stops it.

Ctrl-C, a signal, a failed command and a lost network are all ways to come to the end. Only kill -9 is none: then the
box's own watch over its deadline is left, and `make destroy`.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.foreground import Child, Stop, Tell, run_until_stopped
from .account import OURS, compared
from .client import VastClient
from .destroy import StillBilling, end
from .errors import KeyRefused, VastError
from .ledger import CONSOLE, NotWritten, Rental, id_of, rentals

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance

POLICIES = ("always", "on-success", "never")
# Where the playbook writes which hosts it works on (the callback `drafthouse.core.house`).
RUN_FILE = "DRAFTHOUSE_RUN_FILE"
# How long a network that is gone is waited for, and how often it is tried.
PATIENCE_S, AGAIN_S = 600.0, 20.0
_ENDING = "ending the boxes; another Ctrl-C leaves them as they are, billing"


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
    Raises StillBilling, or another DrafthouseError, where something of ours may go on costing money that should not.
    """
    stop = Stop(tell=world.tell, warning=_ENDING)
    with stop.heard():
        try:
            child = world.start(list(command), env=dict(environment))
        except OSError as error:
            raise one_problem(
                "program-missing",
                f"{command[0]}: {error.strerror or error}",
                "an executable command",
                "correct it; nothing was run or destroyed (make destroy ARGS=--list shows what bills)",
            ) from error
        status = run_until_stopped(child, stop, clock=world.clock, sleep=world.sleep)
        stop.ending = True
        _after(status, policy, world, hosts())
    return status


def _after(status: int, policy: str, world: World, hosts: Collection[str] | None) -> None:
    meant = _worked_on(world, hosts)
    if policy == "never" or (policy == "on-success" and status != 0):
        if meant:
            world.tell("\n".join(left_as_they_are(meant, policy)))
        return
    problems: list[Problem] = []
    unwritten: NotWritten | None = None
    try:
        if meant:
            _ended(meant, world)
    except StillBilling as error:
        if isinstance(error.__context__, (KeyRefused, KeyboardInterrupt)):
            raise  # nothing more is to be asked
        problems += error.problems
    except NotWritten as error:
        unwritten = error
    if hosts is None or hosts:
        try:
            problems += _lost(world, hosts)
        except KeyboardInterrupt:
            problems.append(_not_compared("interrupted"))
    if problems and unwritten:
        problems += unwritten.problems
    if problems:
        raise StillBilling(problems)
    if unwritten:
        raise unwritten


def _worked_on(world: World, hosts: Collection[str] | None) -> list[Rental]:
    """The open rentals that the run was about; one without a number is found by its label, as the inventory does."""
    meant, unanswered = list[Rental](), list[Rental]()
    for rental in rentals(world.ledger).values():
        if rental.is_open and (hosts is None or str(rental.instance) in hosts):
            meant.append(rental)
        elif rental.is_open and rental.instance is None:
            unanswered.append(rental)
    if hosts and unanswered:
        with contextlib.suppress(VastError):  # that the account cannot be read is said by `_lost`
            here = {id_of(row.get("label")) for row in world.client.instances() if str(row["id"]) in hosts}
            meant += [one for one in unanswered if one.id in here]
    return meant


def _lost(world: World, hosts: Collection[str] | None) -> list[Problem]:
    """What the run may have been about besides: what the ledger has lost, or has as ended."""
    try:
        found = compared(world.client, world.ledger)
    except VastError as error:
        return [*error.problems, _not_compared("the account's list could not be read")]
    if hosts is None:
        return found.billing
    lost = [one.problem for one in found.strays if one.whose == OURS or str(one.number) in hosts]
    return [*lost, *found.undead, *found.damage]


def _not_compared(why: str) -> Problem:
    return Problem(
        "rental-state-unknown",
        f"it is unknown what else is billing: {why}",
        "the list of the account's instances",
        f"make destroy, as soon as vast.ai answers; until then check {CONSOLE}",
    )


def left_as_they_are(meant: Collection[Rental], policy: str) -> list[str]:
    """What to say of boxes that go on: what each costs, until when, and what ends it."""
    why = "" if policy == "never" else " (the run did not succeed)"
    lines = [f"DESTROY={policy}{why}: still billing"]
    for one in meant:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.deadline))
        price = one.facts.get("price_per_hour", "?")
        name = one.instance or one.label
        lines.append(f"  instance {name}, ${price} an hour, deadline {until}: make destroy ARGS={name}")
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
                problem: DrafthouseError = error
                if isinstance(error, KeyRefused):
                    raise StillBilling([*problem.problems, by_the_ledger(world.ledger, meant)]) from None
            except StillBilling as error:
                # What another key rented does not come back by waiting.
                if not any("is still billing" in one.found for one in error.problems):
                    raise
                problem = error
            if world.clock() >= until:
                raise StillBilling([*problem.problems, by_the_ledger(world.ledger, meant)]) from None
            world.tell(f"not ended yet ({problem.problems[0].found.splitlines()[0]}); again in {AGAIN_S:.0f} s")
            world.sleep(AGAIN_S)
    except KeyboardInterrupt:
        raise StillBilling(by_the_ledger(world.ledger, meant)) from None


def by_the_ledger(ledger: Path, meant: Collection[Rental]) -> Problem:
    """What to say of rentals that could not be looked after: those that are open in the ledger."""
    known, billing = rentals(ledger), []
    for one in meant:
        rental = known.get(one.id)
        if rental and rental.is_open:
            price = rental.facts.get("price_per_hour", "?")
            billing.append(f"{rental.instance or rental.label} (${price} an hour)")
    return Problem(
        "rental-still-billing",
        f"according to the ledger these may still be billing: {', '.join(billing) or 'none'}",
        "no rental of ours that is billing",
        f"make destroy, as soon as vast.ai answers; or end them manually at {CONSOLE}",
        str(ledger),
    )


def fate_of(client: VastClient, number: int) -> str:
    """The state of an instance that does not answer, as vast.ai tells it, in words."""
    try:
        row = client.instance(number)
    except DrafthouseError as error:
        return f"vast.ai could not be asked ({error.problems[0].found.splitlines()[0]})"
    return words_of(row, number)


def words_of(row: Instance | None, number: int) -> str:
    """The state of an instance in words; ``row`` is None for one that is gone."""
    if row is None:
        return "it is gone from vast.ai and bills nothing"
    status = row.get("actual_status") or "being created"
    text = f"vast.ai says '{status}'"
    message = str(row.get("status_msg") or "").strip().splitlines()
    if message:
        text += f" ({message[0][:120]})"
    what = "its disk is still billing" if status in ("exited", "stopped") else "it is still billing"
    return f"{text}; {what}: make destroy ARGS={number}"
