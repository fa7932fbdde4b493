"""Rent one offer and bring the box to the state "running", in short steps, so that several boxes can start in parallel.

A box is a machine of vast.ai, which calls it an instance. The ledger (ledger.py) has the label on disk before the
create request; if the answer is lost, the instance is found by this label. On any failure the caller (rent.py)
destroys the instance if it may exist (`may_exist`).
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
from .offers import Choice, Limits, Price, full_price, prices_of_instance

if TYPE_CHECKING:
    from drafthouse.cloud.vast.body import RentRequest
    from drafthouse.cloud.vast.ledger import RentalFacts
    from drafthouse.cloud.vast.rows import Instance


@dataclass(frozen=True)
class Waits:
    """Time limits in seconds, and the number of tries."""

    boot_s: float = 1200.0
    """From the request until the box runs with its ports; an image of 12 GB on a slow disk takes 15 minutes."""
    ports_s: float = 120.0
    """Part of ``boot_s`` for the direct ports of a running box; after that, SSH through the proxy is accepted."""
    ssh_s: float = 300.0
    """Until the SSH server of a running box answers; 0 to skip this wait."""
    look_s: float = 45.0
    """Until an instance is listed whose create request was not answered."""
    poll_s: float = 5.0
    """Between two checks of a box."""
    tries: int = 5
    """Offers to try for each box; each try costs minutes and the disk's price."""


@dataclass(frozen=True)
class RentSetup:
    """What renting acts on: account, ledger, user and time; tests replace the functions."""

    client: VastClient
    ledger: Path
    tell: Callable[[str], None] = print
    """Prints a line for the user."""
    show_progress: Callable[[str], None] = lambda text: None
    """Shows a line that the next progress line replaces."""
    ask: Callable[[str], bool] = lambda text: False
    """Question -> True if the user says yes."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    ssh_answers: Callable[[int, str, int], bool] = lambda instance_id, address, port: True
    """(instance number, address, port) -> True if the SSH server answers; its host key is then stored."""
    announced: list[str] = field(default_factory=list)
    """Ids of all rentals that this run announced in the ledger, whether they succeeded or not."""


@dataclass(frozen=True)
class Rented:
    """A running box."""

    id: str  # of the rental
    instance: int  # number at vast.ai
    label: str
    deadline: int  # unix seconds
    row: Instance  # the instance as the API returns it
    price: Price


class NotThisOne(Exception):
    """The offer did not become a usable box; the caller may try the next offer."""


class Attempt:
    """One offer, from the ledger line to a running box (``box``).

    ``public_key``: the user's SSH key, for the box. ``choice``: the offer. ``budget`` returns the highest price, in $
    per hour, that the other boxes of the fleet leave for this one.
    """

    def __init__(
        self,
        setup: RentSetup,
        resolved: ResolvedProfile,
        limits: Limits,
        public_key: str,
        waits: Waits,
        choice: Choice,
        budget: Callable[[Attempt], float],
    ) -> None:
        self.setup = setup
        self.resolved = resolved
        self.limits = limits
        self.public_key = public_key
        self.waits = waits
        self.choice = choice
        self.budget = budget
        self.price = choice.price  # the instance's own once it is listed
        self.id = new_id(mark_of(setup.ledger))
        self.begun = setup.clock()
        # Unix seconds by the provider's clock, because this machine's clock may be set before the deadline.
        self.asked_at = setup.client.clock.now()
        self.deadline = int(self.asked_at + limits.hours * 3600)
        self.common_fields: RentalFacts = {  # of every ledger line, in case the first one is damaged
            "deadline": self.deadline,
            "hours": limits.hours,
            "asked_at": round(self.asked_at, 1),
            "account": setup.client.account,
        }
        self.label = label_of(self.id, self.deadline)
        self.instance_id: int | None = None  # None: no answer has named it yet
        self.box: Rented | None = None  # None: it does not run yet
        self.may_exist = False  # True from the create request on, unless that was refused
        self.is_request_open = False  # True while the create request waits for its answer
        self._reported_price_rise = False
        self._attached_key = False
        self._runs_since: float | None = None  # on the setup's clock, as the next
        self._ports_since: float | None = None

    def request(self) -> None:
        """Announce the rental in the ledger, then send the request. Raises NotThisOne if the offer is gone."""
        setup = self.setup
        body = body_of(self.resolved, self.label, self.deadline, self.limits.hours, setup.client.url)
        setup.announced.append(self.id)
        try:
            record(
                setup.ledger,
                INTENT,
                self.id,
                **self.common_fields,
                profile=self.resolved["profile"],
                offer=self.choice.number,
                price_per_hour=round(self.choice.price.hour, 4),
                cap=self.limits.max_price,
                disk_gb=body["disk"],
            )
            self._create(body)
        except KeyboardInterrupt:
            if not self.may_exist:
                self._record(NEVER)  # it was announced, but the request was not sent
            raise

    def _record(self, event: str, **facts: Any) -> None:
        """Write an event to the ledger, with the common fields and the instance's number."""
        record(self.setup.ledger, event, self.id, instance=self.instance_id, **self.common_fields, **facts)

    def _create(self, body: RentRequest) -> None:
        """Send the create request; if its answer is lost, look for the label. Raises NotThisOne or VastError."""
        setup = self.setup
        setup.tell(f"renting offer {self.choice.number} as {self.label}")
        self.may_exist = self.is_request_open = True
        try:
            self.instance_id = setup.client.create(self.choice.number, body)
            self.is_request_open = False
        except OutcomeUnknown as error:
            self.is_request_open = False
            self._record(UNSURE)
            self.instance_id = self._find_by_label(error)
        except VastError as error:
            self.may_exist = False
            self._record(REFUSED, why=error.problems[0].found)
            if isinstance(error, OfferGone):
                raise NotThisOne("someone else rented it first") from error
            raise
        self._record(CREATED)

    def _attach_key(self, instance_id: int) -> None:
        """Attach the SSH key once, to an instance that surely belongs to this rental."""
        if self._attached_key:
            return
        self._attached_key = True
        try:
            self.setup.client.attach_ssh_key(instance_id, self.public_key)
        except VastError as error:
            # Mostly harmless: new instances get the account's keys, unless they were created before the key was added.
            self.setup.tell(f"the SSH key could not be attached again ({error.problems[0].found})")

    def _find_by_label(self, error: OutcomeUnknown) -> int:
        """Number of the instance with this rental's label.

        If none appears within ``look_s``, raises the refusal of the request if there was one, else ``error``.
        """
        setup = self.setup
        setup.tell(f"{error.problems[0].found}; looking for its label")
        give_up_at = setup.clock() + self.waits.look_s
        while True:
            for instance in setup.client.instances():
                if instance.get("label") == self.label:
                    setup.tell(f"found by its label: instance {instance['id']}")
                    return int(instance["id"])
            if setup.clock() >= give_up_at:
                if isinstance(error.refused, OfferGone):
                    raise NotThisOne("someone else rented it first") from error
                raise error.refused or error
            setup.sleep(self.waits.poll_s)

    def check(self) -> str:
        """Check once whether the box runs with its ports, and set ``box`` if it does; return its state as text.

        An instance with another rental's label is not ours: the own one is looked for by its label. Raises NotThisOne
        if the box has failed or is too late.
        """
        setup = self.setup
        instance_id = self.instance_id
        assert instance_id is not None
        waited_s = setup.clock() - self.begun
        instance, state = self._fetch(instance_id)
        if instance is not None and instance.get("label") and id_of(instance["label"]) != self.id:
            self._handle_wrong_number(instance_id)
            return f"instance {self.instance_id}: found by its label"
        if instance is not None:
            state = self._update(instance_id, instance)
            if self.box is not None:
                return state
            state = f"{state}, {waited_s:.0f} s"
            message = str(instance.get("status_msg") or "").strip().splitlines()
            if message:
                state += f", {message[0][:80]}"
        elif state:
            state = f"{state}, {waited_s:.0f} s"
        # vast.ai answered that there is no such instance; a new one may take `look_s` to appear.
        elif waited_s > self.waits.look_s:
            raise NotThisOne("the instance has vanished")
        if waited_s >= self.waits.boot_s:
            raise NotThisOne(f"it was not running after {waited_s / 60:.0f} min")
        return f"instance {instance_id}: {state or 'not listed yet'}"

    def _handle_wrong_number(self, instance_id: int) -> None:
        """Find the instance by its label, because the answer to the request named someone else's instance."""
        found = f"the answer named instance {instance_id}, which has another label"
        do = "make destroy looks for its label"
        error = OutcomeUnknown(Problem("rental-state-unknown", found, "the number of our own", do, self.label))
        self.instance_id = None
        self._record(UNSURE)
        self.instance_id = self._find_by_label(error)
        self._record(CREATED)

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next check: ``poll_s``, or less near the end of ``boot_s``."""
        return min(self.waits.poll_s, max(0.1, self.waits.boot_s - (self.setup.clock() - self.begun)))

    def may_bill(self, why: BaseException) -> Problem:
        """Problem for an instance that could not be destroyed because of ``why``."""
        instance_id = self.instance_id or "(number unknown)"
        return Problem(
            "rental-still-billing",
            f"instance {instance_id} may still be billing, ${self.price.hour:.3f} an hour ({type(why).__name__})",
            "no rental of ours that is billing",
            "make destroy",
            self.label,
        )

    def _fetch(self, instance_id: int) -> tuple[Instance | None, str]:
        """Return the instance and ''; None and '' if it does not exist; None and the reason without an answer.

        A network error is not raised, because it may pass.
        """
        try:
            return self.setup.client.instance(instance_id), ""
        except OutOfReach as error:
            return None, error.problems[0].found

    def _check_price_and_disk(self, instance: Instance) -> Price:
        """Current price of the instance. Raises NotThisOne if it exceeds the cap, or if the disk is too small."""
        rental = self.resolved["rental"]
        price = full_price(prices_of_instance(instance, self.choice.offer), rental, self.limits.hours)
        # The cap per box, and what the cap of the whole fleet leaves for this one.
        cap = min(self.limits.max_price, self.budget(self))
        if not 0 < price.hour <= cap:
            raise NotThisOne(f"it now costs ${price.hour:.3f} an hour, more than {cap:g}")
        disk = instance.get("disk_space")
        if isinstance(disk, (int, float)) and disk < rental["disk_gb"]:
            raise NotThisOne(f"its disk has {disk:g} GB instead of {rental['disk_gb']}")
        if price.hour > self.choice.price.hour * 1.001 and not self._reported_price_rise:
            self._reported_price_rise = True
            self.setup.tell(f"it now costs ${price.hour:.3f} an hour, which the cap allows")
        return price

    def _update(self, instance_id: int, instance: Instance) -> str:
        """Return the state as text; set ``box`` if the instance runs and can be reached. Raises NotThisOne."""
        self._attach_key(instance_id)
        status = instance.get("actual_status")
        if status in TERMINAL:
            raise NotThisOne(f"the box is '{status}' ({instance.get('status_msg') or 'no reason given'})")
        self.price = self._check_price_and_disk(instance)
        if status != IS_RUNNING:
            return str(status or "being created")
        if missing := self._missing_access(instance_id, instance):
            return missing
        self._record(RUNNING, price_per_hour=round(self.price.hour, 4), gpu=instance.get("gpu_name"))
        self.box = Rented(
            id=self.id, instance=instance_id, label=self.label, deadline=self.deadline, row=instance, price=self.price
        )
        return "runs"

    def _missing_access(self, instance_id: int, instance: Instance) -> str:
        """Text about ports or SSH missing on a running box, '' if it has both. Raises NotThisOne after ``ssh_s``."""
        now = self.setup.clock()
        if self._runs_since is None:
            self._runs_since = now
        if self._ports_since is None:
            if not self._has_ports(instance, now - self._runs_since):
                return "running, without its ports"
            self._ports_since = now
        if not self.waits.ssh_s:
            return ""
        address = ssh_address(instance)
        if address is not None and self.setup.ssh_answers(instance_id, *address):
            return ""
        if now - self._ports_since >= self.waits.ssh_s:
            raise NotThisOne(f"its SSH server did not answer within {self.waits.ssh_s / 60:.0f} min")
        return "running, SSH does not answer yet"

    def _has_ports(self, instance: Instance, running_s: float) -> bool:
        """True if SSH and the API's ports are mapped; after ``ports_s`` seconds the proxy is enough."""
        ports = outer_ports(instance)
        wanted = ["22/tcp", *(f"{port}/tcp" for port in ports_of(self.resolved))]
        missing = [port for port in wanted if port not in ports]
        if not missing:
            return True
        if running_s < self.waits.ports_s or ssh_address(instance) is None:
            return False
        self.setup.tell(
            f"no direct port for {', '.join(missing)}: SSH goes through vast.ai's proxy, the API through a tunnel"
        )
        return True
