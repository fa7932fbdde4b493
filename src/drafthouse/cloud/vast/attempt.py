"""One offer: from the line in the ledger to a box that runs, a look at a time, so that several are waited for at once.

The ledger has the label on disk before the request; an answer that is lost is looked for by that label. Whoever has
made an attempt ends what it may have made (`may_exist`), whatever goes wrong: rent.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import Problem
from ...profiles.resolved_types import ResolvedProfile
from .body import body_of, ports_of
from .client import VastClient
from .errors import OfferGone, OutcomeUnknown, OutOfReach, VastError
from .instances import RUNNING as IS_RUNNING
from .instances import TERMINAL, outer_ports, ssh_address
from .ledger import CREATED, INTENT, NEVER, REFUSED, RUNNING, UNSURE, id_of, label_of, mark_of, new_id, record
from .offers import Choice, Limits, Price, figures_of, priced

if TYPE_CHECKING:
    from drafthouse.cloud.vast.body import RentRequest
    from drafthouse.cloud.vast.ledger import RentalFacts
    from drafthouse.cloud.vast.rows import Instance


@dataclass(frozen=True)
class Waits:
    """How long is waited for what; seconds."""

    boot_s: float = 1200.0
    """From the request until the box runs with its ports: an image of 12 GB on a slow disk takes a quarter hour."""
    ports_s: float = 120.0
    """Of that, for direct ports on a box that runs: without them SSH goes through the proxy."""
    ssh_s: float = 300.0
    """For an SSH server on a box that runs with its ports; 0: it is not waited for."""
    look_s: float = 45.0
    """For an instance whose request was never answered to appear in the list."""
    poll_s: float = 5.0
    tries: int = 5
    """How many offers are tried for each box: each costs minutes, and its disk."""


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
    ssh_answers: Callable[[int, str, int], bool] = lambda number, address, port: True
    """Tells whether an instance's SSH server answers at an address and port, and keeps its host key."""
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


class Attempt:
    """One offer, from the line in the ledger to a box that runs.

    ``room`` tells what the box may cost beside the others of its fleet; $ an hour.
    """

    def __init__(
        self,
        world: World,
        resolved: ResolvedProfile,
        limits: Limits,
        public_key: str,
        waits: Waits,
        choice: Choice,
        room: Callable[[Attempt], float],
    ) -> None:
        self.world, self.resolved, self.limits, self.waits, self.choice = world, resolved, limits, waits, choice
        self.public_key, self.room, self.price = public_key, room, choice.price
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
        self.box: Rented | None = None
        self.may_exist = False
        self.on_its_way = False
        self._raised = False
        self._has_key = False
        self._runs_since: float | None = None
        self._ports_since: float | None = None

    def request(self) -> None:
        """Announce it at the ledger, then ask for it; NotThisOne where somebody was faster."""
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
        except KeyboardInterrupt:
            if not self.may_exist:
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
                raise NotThisOne("someone else rented it first") from error
            raise
        self._note(CREATED)

    def _attach_key(self, number: int) -> None:
        """Attach the SSH key once, to an instance that was seen to be ours."""
        if self._has_key:
            return
        self._has_key = True
        try:
            self.world.client.attach_ssh_key(number, self.public_key)
        except VastError as error:
            # The account's keys are put into every new instance; this is for the one that was made too early for it.
            self.world.tell(f"the SSH key could not be attached again ({error.problems[0].found})")

    def _by_label(self, error: OutcomeUnknown) -> int:
        """The number of the instance that carries our label.

        Where none appears: raises what the request was refused with, else ``error`` again.
        """
        world = self.world
        world.tell(f"{error.problems[0].found}; looking for its label")
        until = world.clock() + self.waits.look_s
        while True:
            for row in world.client.instances():
                if row.get("label") == self.label:
                    world.tell(f"found by its label: instance {row['id']}")
                    return int(row["id"])
            if world.clock() >= until:
                if isinstance(error.refused, OfferGone):
                    raise NotThisOne("someone else rented it first") from error
                raise error.refused or error
            world.sleep(self.waits.poll_s)

    def look(self) -> str:
        """Look once whether the box runs with its ports (then it is ``box``); return what to say of it meanwhile.

        Raises NotThisOne where it does not become one.
        """
        world, number = self.world, self.number
        assert number is not None
        waited = world.clock() - self.begun
        row, state = self._seen(number)
        if row is not None and row.get("label") and id_of(row["label"]) != self.id:
            self._number_of_another(number)
            return f"instance {self.number}: found by its label"
        if row is not None:
            state = self._becomes(number, row)
            if self.box is not None:
                return state
            state = f"{state}, {waited:.0f} s"
            message = str(row.get("status_msg") or "").strip().splitlines()
            if message:
                state += f", {message[0][:80]}"
        elif state:
            state = f"{state}, {waited:.0f} s"
        elif waited > self.waits.look_s:
            raise NotThisOne("the instance has vanished")
        if waited >= self.waits.boot_s:
            raise NotThisOne(f"it was not running after {waited / 60:.0f} min")
        return f"instance {number}: {state or 'not listed yet'}"

    def _number_of_another(self, number: int) -> None:
        """Look for our own instance by its label: the answer to the request named somebody else's."""
        found = f"the answer named instance {number}, which has another label"
        do = "make destroy looks for its label"
        error = OutcomeUnknown(Problem("rental-state-unknown", found, "the number of our own", do, self.label))
        self.number = None
        self._note(UNSURE)
        self.number = self._by_label(error)
        self._note(CREATED)

    @property
    def pause_s(self) -> float:
        """How long to wait before the next look; s."""
        return min(self.waits.poll_s, max(0.1, self.waits.boot_s - (self.world.clock() - self.begun)))

    def may_bill(self, why: BaseException) -> Problem:
        """What to say where it could not be ended."""
        number = self.number or "(number unknown)"
        return Problem(
            "rental-still-billing",
            f"instance {number} may still be billing, ${self.price.hour:.3f} an hour ({type(why).__name__})",
            "no rental of ours that is billing",
            "make destroy",
            self.label,
        )

    def _seen(self, number: int) -> tuple[Instance | None, str]:
        """The instance, and why it could not be looked at: a network that is gone may come back in time."""
        try:
            return self.world.client.instance(number), ""
        except OutOfReach as error:
            return None, error.problems[0].found

    def _checked(self, row: Instance) -> Price:
        """What the instance really costs; NotThisOne where that is above the cap, or its disk too small."""
        rental = self.resolved["rental"]
        price = priced(figures_of(row, self.choice.offer), rental, self.limits.hours)
        most = min(self.limits.max_price, self.room(self))
        if not 0 < price.hour <= most:
            raise NotThisOne(f"it now costs ${price.hour:.3f} an hour, more than {most:g}")
        disk = row.get("disk_space")
        if isinstance(disk, (int, float)) and disk < rental["disk_gb"]:
            raise NotThisOne(f"its disk has {disk:g} GB instead of {rental['disk_gb']}")
        if price.hour > self.choice.price.hour * 1.001 and not self._raised:
            self._raised = True
            self.world.tell(f"it now costs ${price.hour:.3f} an hour, which the cap allows")
        return price

    def _becomes(self, number: int, row: Instance) -> str:
        """What an instance does; where it runs and lacks nothing it is ``box``. Raises NotThisOne."""
        self._attach_key(number)
        status = row.get("actual_status")
        if status in TERMINAL:
            raise NotThisOne(f"the box is '{status}' ({row.get('status_msg') or 'no reason given'})")
        self.price = self._checked(row)
        if status != IS_RUNNING:
            return str(status or "being created")
        if lacks := self._lacks(number, row):
            return lacks
        self._note(RUNNING, price_per_hour=round(self.price.hour, 4), gpu=row.get("gpu_name"))
        self.box = Rented(self.id, number, self.label, self.deadline, row, self.price)
        return "runs"

    def _lacks(self, number: int, row: Instance) -> str:
        """What a box that runs still lacks; NotThisOne where SSH does not answer for too long."""
        now = self.world.clock()
        if self._runs_since is None:
            self._runs_since = now
        if self._ports_since is None:
            if not self._has_ports(row, now - self._runs_since):
                return "running, without its ports"
            self._ports_since = now
        if not self.waits.ssh_s:
            return ""
        reached = ssh_address(row)
        if reached is not None and self.world.ssh_answers(number, *reached):
            return ""
        if now - self._ports_since >= self.waits.ssh_s:
            raise NotThisOne(f"its SSH server did not answer within {self.waits.ssh_s / 60:.0f} min")
        return "running, SSH does not answer yet"

    def _has_ports(self, row: Instance, running_s: float) -> bool:
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
