"""Rent the cheapest box that fits, and leave nothing billing when that does not work.

The order is what makes it safe: the SSH key is in the account before anything is rented; the ledger has the label on
disk before the request; whatever goes wrong after it, Ctrl-C included, the instance is looked for by number or label
and ended; and where even that fails, what still bills is said together with the command that ends it. The box itself
watches the deadline from its first second (body.py), whatever becomes of this machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.format import count
from ...profiles.resolved_types import ResolvedProfile
from .account import compared
from .body import body_of, ports_of
from .client import VastClient
from .destroy import StillBilling, end
from .errors import OfferGone, OutcomeUnknown, OutOfReach, VastError
from .instances import RUNNING as IS_RUNNING
from .instances import TERMINAL, outer_ports, ssh_address
from .ledger import CREATED, INTENT, NEVER, REFUSED, RUNNING, UNSURE, NotWritten, label_of, mark_of, new_id, record
from .offers import Choice, Limits, Price, choices, figures_of, none_fits, offers_table, priced, query_of

if TYPE_CHECKING:
    from .body import RentRequest
    from .ledger import RentalFacts
    from .rows import Instance


@dataclass(frozen=True)
class Waits:
    """How long is waited for what; seconds."""

    boot_s: float = 1200.0
    """From the request until the box runs with its ports: an image of 12 GB on a slow disk takes a quarter hour."""
    ports_s: float = 120.0
    """Of that, for direct ports on a box that runs: without them SSH goes through the proxy."""
    look_s: float = 45.0
    """For an instance whose request was never answered to appear in the list."""
    poll_s: float = 5.0
    tries: int = 5
    """How many offers are tried: each costs minutes, and its disk."""


@dataclass(frozen=True)
class World:
    """What the flow touches: the account, the ledger, a person, and time."""

    client: VastClient
    ledger: Path
    tell: Callable[[str], None] = print
    passing: Callable[[str], None] = lambda text: None
    """Takes a line that the next one replaces."""
    ask: Callable[[str], bool] = lambda text: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    asked: list[str] = field(default_factory=list)
    """The ids of what this run announced, whatever became of it."""


@dataclass(frozen=True)
class Rented:
    """A box that runs: its number and label, the instance as the API shows it, and what it costs."""

    id: str
    instance: int
    label: str
    deadline: int
    row: Instance
    price: Price


class NotThisOne(Exception):
    """The offer did not become a box that will do; the next one may be tried."""


def rent(
    world: World, resolved: ResolvedProfile, limits: Limits, public_key: str, waits: Waits | None = None
) -> Rented | None:
    """Rent a box for ``resolved`` and wait until it runs; None where the person said no.

    Raises DrafthouseError where no offer fits or none became a box, with what still bills if anything does.
    """
    waits = waits or Waits()
    offers = world.client.offers(query_of(resolved, limits))
    found = choices(offers, resolved, limits)
    if not found:
        raise none_fits(offers, resolved, limits)
    world.tell(summary(found, resolved, limits))
    tell_of_account(world)
    first = found[0].price
    if not world.ask(f"rent {found[0].number} for {limits.hours:g} h, ${first.hour:.3f} an hour, ${first.total:.2f}?"):
        return None
    world.client.add_ssh_key(public_key)
    why: list[str] = []
    machines: set[object] = set()
    for choice in found:
        if choice.offer.get("machine_id") in machines:
            continue  # the machine has just failed
        if len(why) == waits.tries:
            break
        try:
            return _Attempt(world, resolved, limits, public_key, waits, choice).run()
        except NotThisOne as reason:
            why.append(f"{choice.number}: {reason}")
            machines |= {choice.offer["machine_id"]} if choice.offer.get("machine_id") is not None else set()
            world.tell(f"offer {choice.number}: {reason}; nothing of it bills")
    raise one_problem(
        "no-offer-started",
        f"{count(len(why), 'offer')} tried, none of which started ({'; '.join(why)})",
        "a running box",
        "run it again later: other machines may be on offer",
        "vast.ai",
    )


def summary(found: list[Choice], resolved: ResolvedProfile, limits: Limits) -> str:
    """Return the table of offers with what stands behind its figures."""
    rental, first = resolved["rental"], found[0].price
    once = first.traffic * limits.hours
    cap = f"cap ${limits.max_price:g} an hour" if math.isfinite(limits.max_price) else "no cap was given"
    lines = [
        offers_table(found),
        f"disk {rental['disk_gb']} GB (from the plan), download {rental['download_gb']:g} GB, driver"
        f" {rental['driver'] or 'any'} or newer, image {rental['image']}",
        f"estimated for {limits.hours:g} h on {found[0].number}: ${first.total:.2f}"
        f" (box ${first.box * limits.hours:.2f}, disk ${first.disk * limits.hours:.2f}, traffic ${once:.2f});"
        f" {cap}",
    ]
    return "\n".join(lines)


def tell_of_account(world: World) -> None:
    """Say what bills already and is not in the ledger, or not in the list: another box beside it costs twice."""
    try:
        for problem in compared(world.client, world.ledger).billing:
            world.tell(f"{problem.found}; {problem.do}")
    except DrafthouseError as error:
        world.tell(f"what bills already cannot be told: {error.problems[0].found}")


class _Attempt:
    """One offer, from the line in the ledger to a box that runs."""

    def __init__(
        self,
        world: World,
        resolved: ResolvedProfile,
        limits: Limits,
        public_key: str,
        waits: Waits,
        choice: Choice,
    ) -> None:
        self.world, self.resolved, self.limits, self.waits, self.choice = world, resolved, limits, waits, choice
        self.public_key = public_key
        self.id = new_id(mark_of(world.ledger))
        self.begun = world.clock()
        # In the provider's time: this machine's clock may be set before the box is due.
        self.asked_at = world.client.clock.now()
        self.deadline = int(self.asked_at + limits.hours * 3600)
        self.terms: RentalFacts = {
            "deadline": self.deadline,
            "hours": limits.hours,
            "asked_at": round(self.asked_at, 1),
            "account": world.client.account,
        }
        self.label = label_of(self.id, self.deadline)
        self.number: int | None = None
        self.may_exist = False
        self.on_its_way = False
        self.raised = False

    def run(self) -> Rented:
        world, price = self.world, self.choice.price
        body = body_of(self.resolved, self.label, self.deadline, self.limits.hours, world.client.url)
        world.asked.append(self.id)
        try:
            record(
                world.ledger,
                INTENT,
                self.id,
                **self.terms,
                profile=self.resolved["profile"],
                offer=self.choice.number,
                price_per_hour=round(price.hour, 4),
                cap=self.limits.max_price,
                disk_gb=body["disk"],
            )
            self._create(body)
            return self._wait()
        except BaseException as error:
            if self.may_exist:
                self._clean_up(error)
            elif isinstance(error, KeyboardInterrupt):
                self._note(NEVER)  # announced, and not asked for any more
            raise

    def _note(self, event: str, **facts: Any) -> None:
        # Each line can do without the first one, should that be damaged.
        record(self.world.ledger, event, self.id, instance=self.number, **self.terms, **facts)

    def _create(self, body: RentRequest) -> None:
        """Send the request; where its answer is lost, look for the label."""
        world = self.world
        world.tell(f"renting offer {self.choice.number} as {self.label}")
        self.may_exist = self.on_its_way = True
        try:
            self.number = world.client.create(self.choice.number, body)
            self.on_its_way = False
        except OutcomeUnknown as error:
            self.on_its_way = False
            self._note(UNSURE)
            self.number = self._by_label(error)
        except VastError as error:
            self.may_exist = False
            self._note(REFUSED, why=error.problems[0].found)
            if isinstance(error, OfferGone):
                raise NotThisOne("somebody else was faster") from error
            raise
        self._note(CREATED)
        try:
            world.client.attach_ssh_key(self.number, self.public_key)
        except VastError as error:
            # The account's keys are put into every new instance; this is for the one that was made too early for it.
            world.tell(f"the SSH key could not be attached once more ({error.problems[0].found})")

    def _by_label(self, error: OutcomeUnknown) -> int:
        """Return the instance that carries our label; the error again where none appears."""
        world = self.world
        world.tell(f"{error.problems[0].found}; looking for its label")
        until = world.clock() + self.waits.look_s
        while True:
            for row in world.client.instances():
                if row.get("label") == self.label:
                    world.tell(f"found again by its label: instance {row['id']}")
                    return int(row["id"])
            if world.clock() >= until:
                raise error
            world.sleep(self.waits.poll_s)

    def _wait(self) -> Rented:
        """Wait until the box runs with its ports; raise NotThisOne where it does not."""
        world, number = self.world, self.number
        assert number is not None
        runs_since: float | None = None
        while True:
            waited = world.clock() - self.begun
            row, unseen = self._look(number)
            if row is not None:
                status = row.get("actual_status")
                if status in TERMINAL:
                    raise NotThisOne(f"the box is '{status}' ({row.get('status_msg') or 'no reason given'})")
                price = self._checked(row)
                if status == IS_RUNNING:
                    runs_since = world.clock() if runs_since is None else runs_since
                    if self._reachable(row, world.clock() - runs_since):
                        return self._running(row, price)
                said = str(row.get("status_msg") or "").strip().splitlines()
                world.passing(
                    f"instance {number}: {status or 'being made'}, {waited:.0f} s"
                    + (f", {said[0][:80]}" if said else "")
                )
            elif unseen:
                world.passing(f"instance {number}: {unseen}, {waited:.0f} s")
            elif waited > self.waits.look_s:
                raise NotThisOne("the instance has vanished")
            if waited >= self.waits.boot_s:
                raise NotThisOne(f"it did not run after {waited / 60:.0f} min")
            world.sleep(min(self.waits.poll_s, max(0.1, self.waits.boot_s - waited)))

    def _look(self, number: int) -> tuple[Instance | None, str]:
        """Return the instance, and why it could not be looked at: a network that is gone may come back in time."""
        try:
            return self.world.client.instance(number), ""
        except OutOfReach as error:
            return None, error.problems[0].found

    def _checked(self, row: Instance) -> Price:
        """Return what the instance really costs; NotThisOne where that is above the cap, or its disk too small."""
        rental = self.resolved["rental"]
        price = priced(figures_of(row, self.choice.offer), rental, self.limits.hours)
        if not 0 < price.hour <= self.limits.max_price:
            raise NotThisOne(f"it costs ${price.hour:.3f} an hour by now, more than {self.limits.max_price:g}")
        disk = row.get("disk_space")
        if isinstance(disk, (int, float)) and disk < rental["disk_gb"]:
            raise NotThisOne(f"its disk has {disk:g} GB instead of {rental['disk_gb']}")
        if price.hour > self.choice.price.hour * 1.001 and not self.raised:
            self.raised = True
            self.world.tell(f"it costs ${price.hour:.3f} an hour by now, which the cap allows")
        return price

    def _reachable(self, row: Instance, running_s: float) -> bool:
        """Tell whether SSH and the API's ports are mapped; after a while the proxy will do."""
        ports = outer_ports(row)
        wanted = ["22/tcp", *(f"{port}/tcp" for port in ports_of(self.resolved))]
        missing = [port for port in wanted if port not in ports]
        if not missing:
            return True
        if running_s < self.waits.ports_s or ssh_address(row) is None:
            return False
        self.world.tell(
            f"no direct port for {', '.join(missing)}: SSH goes through vast.ai's proxy, the API through a tunnel"
        )
        return True

    def _running(self, row: Instance, price: Price) -> Rented:
        self._note(RUNNING, price_per_hour=round(price.hour, 4), gpu=row.get("gpu_name"))
        assert self.number is not None
        return Rented(self.id, self.number, self.label, self.deadline, row, price)

    def _clean_up(self, error: BaseException) -> None:
        """End whatever the request made; DrafthouseError with what still bills where that fails.

        A Ctrl-C that comes while it is ended does not keep it from being ended; the next one does.
        """
        stopped: KeyboardInterrupt | None = None
        while True:
            try:
                if stopped is not None:
                    self.world.tell("it is being ended; once more leaves it as it is, billing")
                self._end(error)
                break
            except KeyboardInterrupt as again:
                if stopped is not None:
                    raise StillBilling([*_problems(error), self._may_bill(again)]) from error
                stopped = again
        if stopped is not None and not isinstance(error, KeyboardInterrupt):
            raise stopped

    def _end(self, error: BaseException) -> None:
        world = self.world
        why = str(error) if isinstance(error, NotThisOne) else type(error).__name__
        # What was still on its way a moment ago may appear for as long from now on.
        late = world.clock() - self.begun if self.on_its_way else 0.0
        try:
            world.tell(f"ending what was rented: {why.splitlines()[0] if why else 'stopped'}")
            end(
                world.client,
                world.ledger,
                only={self.id},
                why=why[:200],
                tell=world.tell,
                clock=world.clock,
                sleep=world.sleep,
                settle_s=self.waits.look_s + late,
            )
        except StillBilling as failed:
            raise StillBilling([*_problems(error), *failed.problems]) from error
        except NotWritten as failed:
            raise NotWritten([*_problems(error), *failed.problems]) from error
        except Exception as failed:
            raise StillBilling([*_problems(error), *_problems(failed), self._may_bill(failed)]) from error

    def _may_bill(self, failed: BaseException) -> Problem:
        number = self.number or "(its number was never told)"
        return Problem(
            "rental-still-billing",
            f"instance {number} may still be billing, ${self.choice.price.hour:.3f} an hour ({type(failed).__name__})",
            "no rental of ours that is billing",
            "make destroy",
            self.label,
        )


def _problems(error: BaseException) -> list[Problem]:
    return error.problems if isinstance(error, DrafthouseError) else []
