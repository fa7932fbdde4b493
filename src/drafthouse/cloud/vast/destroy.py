"""Destroy the instances that the ledger has as rented, and no others (account.py decides which belong to it).

It can be repeated: an instance that is gone already, which its number must confirm, counts as a success. A stray, which
has a Drafthouse label but is not in the ledger, is destroyed only after confirmation. If the account's list is
incomplete, instances whose numbers are in the ledger are destroyed anyway, and an error is raised.

If a create request was never answered, its instance may appear in the list later: the list is read until the request
is ``settle_s`` seconds old. An instance that appears even later is destroyed by the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import DrafthouseError, Problem, one_problem
from .account import (
    OTHER_LEDGER,
    UNKNOWN_OWNER,
    Stray,
    duplicates_of,
    find_strays,
    instances_of,
    is_instance_of,
    price_of,
    why_unsure,
)
from .client import VastClient
from .errors import KeyRefused, VastError
from .ledger import CONSOLE, DESTROYED, GONE, INTENT, NEVER, UNSURE, NotWritten, Rental, mark_of, read, record

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance, Priced

# Seconds of age at which a create request without an answer counts as having made no instance.
SETTLE_S = 60.0
# Seconds after its deadline by which a box has tried several times to destroy and to stop itself.
OVERDUE_S = 600.0
# Pauses between two reads of the list, in seconds; each is twice the one before.
_FIRST_PAUSE_S = 0.5
_MAX_PAUSE_S = 5.0
# Pauses, in seconds, before each check that a destroyed instance is gone; after the last one it is reported.
_CONFIRM_PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
# Asks whether to destroy a stray: (question, sure) -> yes, no, or None without a user. ``sure``: the stray has this
# ledger's mark, or the user named it.
Confirm = Callable[[str, bool], bool | None]


@dataclass
class Ended:
    """What became of the rentals that were to end."""

    destroyed: list[str] = field(default_factory=list)
    """Labels of the rentals whose destroy request was accepted."""
    gone: list[str] = field(default_factory=list)
    """Labels of the rentals whose instance did not exist (any more)."""
    billing: list[Problem] = field(default_factory=list)
    """Instances that still bill, or may bill."""
    elsewhere: list[Problem] = field(default_factory=list)
    """Rentals of another account, which this key cannot end."""
    unwritten: list[Problem] = field(default_factory=list)
    """Ends that could not be written to the ledger."""
    damage: list[Problem] = field(default_factory=list)
    """Damaged lines of the ledger; their rentals were ended only if the account lists them."""
    accepted: list[tuple[Rental, int, str]] = field(default_factory=list)
    """(rental, instance number, reason) of accepted destroy requests; the ledger has them as ended once confirmed."""
    unlisted: list[Rental] = field(default_factory=list)
    """Rentals whose instance exists but is not listed: the list is behind, so a duplicate may appear too."""


class StillBilling(DrafthouseError):
    """Rented instances still bill, or may bill; each problem has the price and the command that ends it."""


def end_rentals(
    client: VastClient,
    ledger: Path,
    *,
    only: Collection[str] | None = None,
    why: str = "asked for",
    tell: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = SETTLE_S,
    ask: Confirm = lambda question, sure: None,
) -> Ended:
    """Destroy the instances of this ledger, or ``only`` those with these ids, labels or instance numbers.

    Raises StillBilling for instances that still bill, that another key rented, or that ``ask`` did not confirm;
    NotWritten if all are destroyed but the ledger cannot be written; VastError if the account's list is incomplete.
    Without the list, the rentals are destroyed by their numbers before that; with a refused key nothing is tried.

    ``why``: the reason, for the ledger. ``settle_s``: see `SETTLE_S`.
    """
    book = read(ledger)
    wanted = {rental.id: rental for rental in book.rentals.values() if only is None or _names_of(rental) & set(only)}
    ended = Ended(damage=book.damage)
    ending = _Ending(
        client=client, ledger=ledger, why=why, tell=tell, sleep=sleep, clock=clock, settle_s=settle_s, ended=ended
    )
    # Damaged lines matter if all rentals are to end. ``only`` names some whose lines are intact.
    damage: list[Problem] = []
    if not only:
        damage = book.damage
    try:
        instances = client.instances()
    except KeyRefused:
        raise
    except VastError as error:
        ending.end_without_list(wanted.values())
        raise _error_without_list(error, ended, damage) from error
    found_strays = find_strays(book, instances, client.account, mark_of(ledger))
    if only is not None:
        _check_names(only, wanted, found_strays)
    # Ended rentals are searched too: their instance may have appeared late. Unanswered rentals come last, because they
    # need a wait, during which the others would bill.
    for rental in sorted(wanted.values(), key=_is_unanswered):
        instances = ending.end_rental(rental, instances)
    ending.end_strays(found_strays, only, ask)
    ending.end_late_duplicates()
    ending.confirm_gone()
    if ended.billing or ended.elsewhere:
        raise StillBilling([*ended.billing, *ended.elsewhere, *ended.unwritten, *damage])
    if ended.unwritten:
        raise NotWritten(ended.unwritten)
    return ended


def _error_without_list(error: VastError, ended: Ended, damage: list[Problem]) -> DrafthouseError:
    """The ``error`` of the list with all problems: StillBilling if something may bill, else of the same class."""
    billing = [*ended.billing, *ended.elsewhere]
    kind: type[DrafthouseError] = type(error)
    if billing:
        kind = StillBilling
    return kind([*error.problems, *billing, *ended.unwritten, *damage])


def end_duplicates(
    client: VastClient,
    ledger: Path,
    ids: Collection[str],
    tell: Callable[[str], None],
    sleep: Callable[[float], None],
) -> list[Problem]:
    """Destroy duplicates: further instances with the label of a running rental. Return those that may still bill.

    A proxy that repeats a create request makes two instances with one label, of which the answer names only one.
    Raises VastError if the account's list is incomplete.
    """
    ending = _Ending(client, ledger, "a second instance of its label", tell, sleep)
    instances = client.instances()
    for rental in read(ledger).rentals.values():
        if rental.id not in ids:
            continue
        for instance in duplicates_of(rental, instances_of(rental, instances, client.account)):
            ending.destroy(rental, instance, ending.why)
            ending.record_event(DESTROYED, rental, instance=int(instance["id"]), account=client.account, why=ending.why)
            # The line above has the rental's id, so the state of the kept instance must be recorded again.
            ending.record_event(rental.state, rental, instance=rental.instance, account=rental.account)
    ending.confirm_gone(record_end=False)
    return [*ending.ended.billing, *ending.ended.unwritten]


def still_billing(rental: Rental, why: str, instance: Instance | None = None) -> Problem:
    """Problem for a rental that could not be ended; ``instance`` is None if it is not listed."""
    instance_id: object = rental.instance or "(number unknown)"
    priced: Priced = {"dph_total": rental.facts.get("price_per_hour")}
    if instance:
        instance_id = instance["id"]
    if instance and "dph_total" in instance:
        priced = instance
    return Problem(
        "rental-still-billing",
        f"instance {instance_id} is still billing, {price_of(priced)} ({why})",
        "no rental of ours that is billing",
        f"make destroy; or end it manually at {CONSOLE}",
        rental.label,
    )


def _names_of(rental: Rental) -> set[str]:
    """Names by which a user may refer to a rental."""
    return {rental.id, rental.label, str(rental.instance)}


def _check_names(names: Collection[str], by_id: Mapping[str, Rental], found_strays: Collection[Stray]) -> None:
    """Raise DrafthouseError for names that refer to no rental and no stray."""
    valid: set[str] = set()
    for rental in by_id.values():
        valid |= _names_of(rental)
    for stray in found_strays:
        valid |= stray.names
    missing = sorted(set(names) - valid)
    if missing:
        raise one_problem(
            "no-such-rental",
            f"{', '.join(missing)}, not in this ledger",
            "an id, a label or an instance number of ours",
            "make destroy ARGS=--list shows them",
        )


def _is_unanswered(rental: Rental) -> bool:
    """True if the answer to the create request was lost and the instance was not found yet."""
    return rental.state in (INTENT, UNSURE) and rental.instance is None


def _age_s(client: VastClient, rental: Rental) -> float:
    """Seconds since the create request, by the provider's clock (by this machine's for old ledger lines)."""
    asked_at = rental.facts.get("asked_at")
    if isinstance(asked_at, (int, float)):
        return max(0.0, client.clock.now() - asked_at)
    return max(0.0, time.time() - rental.begun)


def _may_bill(rental: Rental, error: VastError) -> Problem:
    """Problem for a rental of which vast.ai did not say whether it exists."""
    return still_billing(rental, f"or may be: {error.problems[0].found}")


@dataclass
class _Ending:
    """Destroys rentals one after the other and collects the results in ``ended``."""

    client: VastClient
    ledger: Path
    why: str  # the reason, for the ledger
    tell: Callable[[str], None]  # prints a line for the user
    sleep: Callable[[float], None]
    clock: Callable[[], float] = time.monotonic
    settle_s: float = SETTLE_S  # age at which a create request without an answer has made no instance
    ended: Ended = field(default_factory=Ended)

    def end_rental(self, rental: Rental, instances: list[Instance]) -> list[Instance]:
        """Destroy all listed instances of a rental, or an open one by its number; return the newest list."""
        try:
            instances = self._wait_for_unanswered(rental, instances)
        except VastError as error:
            self.ended.billing.append(_may_bill(rental, error))
            return instances
        listed = instances_of(rental, instances, self.client.account)
        for instance in listed:
            self.destroy(rental, instance, self.why)
        if not listed and rental.is_open:
            self._end_unlisted(rental)
        return instances

    def end_without_list(self, wanted: Collection[Rental]) -> None:
        """Destroy rentals by their numbers if there is no list; report open rentals that have no number."""
        for rental in wanted:
            if rental.is_open and rental.instance is None:
                self.ended.billing.append(still_billing(rental, "or may be: it cannot be found without a list"))
            elif rental.is_open:
                self._end_unlisted(rental)
        self.confirm_gone(can_list=False)

    def end_strays(self, found_strays: Collection[Stray], only: Collection[str] | None, ask: Confirm) -> None:
        """Destroy strays (instances that the ledger lacks) that ``ask`` confirms; report the others as billing.

        If ``only`` is None, strays of other ledgers are skipped; otherwise all that ``only`` does not name.
        """
        for stray in found_strays:
            is_named = only is not None and bool(stray.names & set(only))
            if not is_named and (only is not None or stray.origin == OTHER_LEDGER):
                continue
            if ask(f"{stray.text}. End it?", is_named or stray.origin != UNKNOWN_OWNER):
                self.destroy(stray.rental, stray.box, "it was not in the ledger")
            else:
                self.ended.billing.append(stray.problem)

    def end_late_duplicates(self) -> None:
        """If the list was behind, read it until the requests are ``settle_s`` seconds old, and destroy duplicates."""
        waits_s = [self.settle_s - _age_s(self.client, rental) for rental in self.ended.unlisted]
        until = self.clock() + max(waits_s, default=0.0)
        while (left := until - self.clock()) > 0:
            self.sleep(min(_MAX_PAUSE_S, left))
            try:
                instances = self.client.instances()
            except VastError as error:
                self.ended.billing += [_may_bill(rental, error) for rental in self.ended.unlisted]
                return
            accepted_ids = {instance_id for _, instance_id, _ in self.ended.accepted}
            for rental in self.ended.unlisted:
                for instance in instances_of(rental, instances, self.client.account):
                    if int(instance["id"]) not in accepted_ids:
                        self.destroy(rental, instance, self.why)

    def confirm_gone(self, *, can_list: bool = True, record_end: bool = True) -> None:
        """Check that destroyed instances are neither listed nor found by number; report the others as billing.

        The ledger gets their end only after this check, so that a run that was killed before is repeated.
        ``record_end`` is False for duplicates, whose rental goes on.
        """
        pending = list(self.ended.accepted)  # those that are not confirmed yet
        doubt = ""  # why they are not
        for pause in _CONFIRM_PAUSES_S:
            if not pending:
                break
            if pause:
                self.sleep(pause)
            try:
                listed: set[int] = set()
                if can_list:
                    listed = {int(instance["id"]) for instance in self.client.instances()}
                remaining = []
                for sent in pending:
                    _, instance_id, _ = sent
                    if instance_id in listed or self.client.instance(instance_id) is not None:
                        remaining.append(sent)
                pending = remaining
                doubt = "destroyed, but still there"
            except VastError as error:
                doubt = f"destroyed, but not confirmed: {error.problems[0].found}"
                break
        for sent in self.ended.accepted:
            rental, instance_id, why = sent
            if sent in pending:
                self.ended.billing.append(still_billing(rental, doubt, {"id": instance_id}))
                self.record_event(UNSURE, rental, instance=instance_id, account=self.client.account)
            elif record_end:
                self.record_event(DESTROYED, rental, instance=instance_id, account=self.client.account, why=why)

    # --- one rental ----------------------------------------------------------------------------------

    def destroy(self, rental: Rental, instance: Instance, why: str) -> None:
        """Destroy an instance of a rental; report it as billing if vast.ai refuses.

        An instance that existed counts as ended only after `confirm_gone`.
        """
        instance_id = int(instance["id"])
        account = self.client.account
        if instance_id != rental.instance:
            # It was found by its label: record its number, so that a later run requests this one by number.
            self.record_event(UNSURE, rental, instance=instance_id, account=account)
        try:
            existed = self.client.destroy(instance_id)
        except VastError as error:
            self.ended.billing.append(still_billing(rental, error.problems[0].found, instance))
            return
        if existed:
            self.ended.destroyed.append(rental.label)
            self.ended.accepted.append((rental, instance_id, why))
            self._report_end("destroyed", rental, instance_id)
        else:
            self.ended.gone.append(rental.label)
            self.record_event(GONE, rental, instance=instance_id, account=account, why=why)
            self._report_end("gone already", rental, instance_id)

    def record_event(self, event: str, rental: Rental, **facts: Any) -> None:
        """Write an event to the ledger; if that fails, collect the problem and go on with the other rentals."""
        try:
            record(self.ledger, event, rental.id, **facts)
        except NotWritten as error:
            self.ended.unwritten.append(
                Problem(
                    "ledger-unwritable",
                    f"{rental.label} has ended, but {error.problems[0].found}",
                    "its end recorded in the ledger",
                    "free disk space, then run make destroy again: it will find the box gone",
                    str(self.ledger),
                )
            )

    def _report_end(self, verb: str, rental: Rental, instance_id: int) -> None:
        self.tell(f"{verb}: instance {instance_id} ({rental.facts.get('profile', '?')}), label {rental.label}")

    def _wait_for_unanswered(self, rental: Rental, instances: list[Instance]) -> list[Instance]:
        """Read the list again until it has the instance of an unanswered rental, or the request is old enough."""
        if not _is_unanswered(rental):
            return instances
        pause = 0.0
        age = _age_s(self.client, rental)
        until = self.clock() + self.settle_s - age
        while not instances_of(rental, instances, self.client.account) and (left := until - self.clock()) > 0:
            if not pause:
                self.tell(f"{rental.label}: requested {age:.0f} s ago, never answered; looking for it")
            pause = min(2 * pause or _FIRST_PAUSE_S, _MAX_PAUSE_S)
            self.sleep(min(pause, left))
            instances = self.client.instances()
        return instances

    def _end_unlisted(self, rental: Rental) -> None:
        """Destroy an open rental that is not listed, or close it if its number does not exist either.

        An instance of this number that may be someone else's is reported as billing, and left alone.
        """
        instance = None
        if rental.instance is not None and rental.account in ("", self.client.account):
            try:
                instance = self.client.instance(rental.instance)
            except VastError as error:
                self.ended.billing.append(_may_bill(rental, error))
                return
        if instance is None:
            self._close_missing(rental)
        elif is_instance_of(rental, instance, self.client.account):
            self.ended.unlisted.append(rental)
            self.destroy(rental, instance, self.why)
        else:
            # The instance has another label and may belong to someone else.
            self.ended.billing.append(still_billing(rental, f"or may be: {why_unsure(rental, instance)}"))

    def _close_missing(self, rental: Rental) -> None:
        """Close a rental that is not in the account; one of another account stays open and is reported."""
        if rental.account != self.client.account:
            whose = "rented with another key or at another address" if rental.account else "rented with an unknown key"
            self.ended.elsewhere.append(
                Problem(
                    "rental-of-another-account",
                    f"{whose}, not in this account ({rental.instance or '?'})",
                    "the API key it was rented with",
                    "set VAST_API_KEY (and VAST_URL) to that one, then make destroy again; it bills until its deadline",
                    rental.label,
                )
            )
            return
        self.ended.gone.append(rental.label)
        if rental.instance is None:
            self.record_event(NEVER, rental)
            self.tell(f"{rental.label}: was never created")
        else:
            self.record_event(GONE, rental, why=self.why)
            self._report_end("gone already", rental, rental.instance)


# The columns of `listing.Listing`: their names in JSON and their heads in a table.
LIST_NAMES = ("instance", "label", "profile", "status", "price_per_hour", "since", "cost", "deadline")
LIST_HEAD = ("instance", "label", "profile", "status", "$/h", "since", "$ until now", "deadline")
