"""Run a command on rented boxes and destroy them afterwards: always, only on success, or never (the policy).

The policy is applied after Ctrl-C, a signal, a failed command and a lost network too. After kill -9 only the box's own
deadline watch or `make destroy` ends it.
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
from .account import THIS_LEDGER, compare_with_account
from .client import VastClient
from .destroy import StillBilling, end_rentals
from .errors import KeyRefused, VastError
from .ledger import CONSOLE, NotWritten, Rental, id_of, rentals

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance

POLICIES = ("always", "on-success", "never")  # when the boxes are destroyed; success: exit status 0
# Environment variable with the file in which the playbook lists its hosts (the callback `drafthouse.core.house`).
RUN_FILE = "DRAFTHOUSE_RUN_FILE"
PATIENCE_S = 600.0  # seconds during which failed destroy requests are retried
RETRY_S = 20.0  # seconds between two of them
_ENDING_WARNING = "ending the boxes; another Ctrl-C leaves them as they are, billing"


@dataclass(frozen=True)
class RunSetup:
    """What a run acts on: account, ledger, messages, time and subprocess; tests replace the functions."""

    client: VastClient
    ledger: Path
    tell: Tell = print  # prints a line for the user
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_s: float = PATIENCE_S  # for which failed destroy requests are retried
    start: Callable[..., Child] = subprocess.Popen  # starts the command


def run_then_destroy(
    command: Sequence[str],
    policy: str,
    setup: RunSetup,
    environment: Mapping[str, str],
    hosts: Callable[[], Collection[str] | None],
) -> int:
    """Run ``command``, apply ``policy`` to the instances it worked on, and return the command's exit status.

    ``hosts`` returns the numbers of these instances, None for all rentals of the ledger; it is called once the command
    has ended. Raises DrafthouseError.
    """
    stop = Stop(tell=setup.tell, warning=_ENDING_WARNING)
    with stop.handling_signals():
        try:
            child = setup.start(list(command), env=dict(environment))
        except OSError as error:
            raise one_problem(
                "program-missing",
                f"{command[0]}: {error.strerror or error}",
                "an executable command",
                "correct it; nothing was run or destroyed (make destroy ARGS=--list shows what bills)",
            ) from error
        status = run_until_stopped(child, stop, clock=setup.clock, sleep=setup.sleep)
        stop.ending = True
        _after(status, policy, setup, hosts())
    return status


def _after(status: int, policy: str, setup: RunSetup, hosts: Collection[str] | None) -> None:
    """Destroy or keep the instances after a command with exit ``status``; report others that bill unexpectedly."""
    rented = _worked_on(setup, hosts)
    if policy == "never" or (policy == "on-success" and status != 0):
        if rented:
            setup.tell("\n".join(kept_lines(rented, policy)))
        return
    problems: list[Problem] = []
    unwritten: NotWritten | None = None
    try:
        if rented:
            _destroy_with_retries(rented, setup)
    except StillBilling as error:
        if isinstance(error.__context__, (KeyRefused, KeyboardInterrupt)):
            raise  # without a key, or after Ctrl-C, nothing more is requested
        problems += error.problems
    except NotWritten as error:
        unwritten = error
    # An empty list of hosts: the command worked on no box, so nothing that bills is of this run.
    if hosts is None or hosts:
        try:
            problems += _unexpected_billing(setup, hosts)
        except KeyboardInterrupt:
            problems.append(_not_compared("interrupted"))
    # What bills is more urgent than a ledger that cannot be written, so it decides the error's class.
    if problems and unwritten:
        problems += unwritten.problems
    if problems:
        raise StillBilling(problems)
    if unwritten:
        raise unwritten


def _worked_on(setup: RunSetup, hosts: Collection[str] | None) -> list[Rental]:
    """Open rentals that the run worked on; a rental without a number is found by its label, as in the inventory."""
    rented: list[Rental] = []
    unanswered: list[Rental] = []
    for rental in rentals(setup.ledger).values():
        if rental.is_open and (hosts is None or str(rental.instance) in hosts):
            rented.append(rental)
        elif rental.is_open and rental.instance is None:
            unanswered.append(rental)
    if hosts and unanswered:
        with contextlib.suppress(VastError):  # `_unexpected_billing` reports an account that cannot be read
            ids = {id_of(box.get("label")) for box in setup.client.instances() if str(box["id"]) in hosts}
            rented += [rental for rental in unanswered if rental.id in ids]
    return rented


def _unexpected_billing(setup: RunSetup, hosts: Collection[str] | None) -> list[Problem]:
    """Problems of instances that the ledger lacks or has as ended, but that the run may have worked on.

    With ``hosts`` None, everything that bills unexpectedly.
    """
    try:
        comparison = compare_with_account(setup.client, setup.ledger)
    except VastError as error:
        return [*error.problems, _not_compared("the account's list could not be read")]
    if hosts is None:
        return comparison.billing
    lost = [stray.problem for stray in comparison.strays if stray.origin == THIS_LEDGER or str(stray.number) in hosts]
    return [*lost, *comparison.reappeared, *comparison.damage]


def _not_compared(why: str) -> Problem:
    """Problem if the ledger could not be compared with the account."""
    return Problem(
        "rental-state-unknown",
        f"it is unknown what else is billing: {why}",
        "the list of the account's instances",
        f"make destroy, as soon as vast.ai answers; until then check {CONSOLE}",
    )


def kept_lines(rented: Collection[Rental], policy: str) -> list[str]:
    """Lines about boxes that are kept: their prices, their deadlines, and the command that ends each."""
    why = "" if policy == "never" else " (the run did not succeed)"
    lines = [f"DESTROY={policy}{why}: still billing"]
    for rental in rented:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(rental.deadline))
        price = rental.facts.get("price_per_hour", "?")
        name = rental.instance or rental.label
        lines.append(f"  instance {name}, ${price} an hour, deadline {until}: make destroy ARGS={name}")
    return lines


def _destroy_with_retries(rented: Sequence[Rental], setup: RunSetup) -> None:
    """Destroy the rentals; retry for ``patience_s`` seconds while vast.ai fails or an instance does not end.

    Raises StillBilling, at once if the key is refused, only another account's instances are left, or after Ctrl-C.
    """
    until = setup.clock() + setup.patience_s
    try:
        while True:
            try:
                end_rentals(
                    setup.client, setup.ledger, only={box.id for box in rented}, why="the run is over", tell=setup.tell
                )
                return
            except VastError as error:
                problem: DrafthouseError = error
                if isinstance(error, KeyRefused):
                    raise StillBilling([*problem.problems, by_the_ledger(setup.ledger, rented)]) from None
            except StillBilling as error:
                # A retry does not help with instances of another account.
                if not any("is still billing" in reported.found for reported in error.problems):
                    raise
                problem = error
            if setup.clock() >= until:
                raise StillBilling([*problem.problems, by_the_ledger(setup.ledger, rented)]) from None
            setup.tell(f"not ended yet ({problem.problems[0].found.splitlines()[0]}); again in {RETRY_S:.0f} s")
            setup.sleep(RETRY_S)
    except KeyboardInterrupt:
        raise StillBilling(by_the_ledger(setup.ledger, rented)) from None


def by_the_ledger(ledger: Path, rented: Collection[Rental]) -> Problem:
    """Problem that lists the rentals that are open in the ledger, for use if the account cannot be read."""
    by_id = rentals(ledger)
    billing = []
    for rented_box in rented:
        rental = by_id.get(rented_box.id)  # as the ledger has it now
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


def instance_state(client: VastClient, instance_id: int) -> str:
    """State of an instance according to vast.ai, as text."""
    try:
        instance = client.instance(instance_id)
    except DrafthouseError as error:
        return f"vast.ai could not be asked ({error.problems[0].found.splitlines()[0]})"
    return state_text(instance, instance_id)


def state_text(instance: Instance | None, instance_id: int) -> str:
    """State of an instance as text; ``instance`` is None if it is gone."""
    if instance is None:
        return "it is gone from vast.ai and bills nothing"
    status = instance.get("actual_status") or "being created"
    text = f"vast.ai says '{status}'"
    message = str(instance.get("status_msg") or "").strip().splitlines()
    if message:
        text += f" ({message[0][:120]})"
    bill = "its disk is still billing" if status in ("exited", "stopped") else "it is still billing"
    return f"{text}; {bill}: make destroy ARGS={instance_id}"
