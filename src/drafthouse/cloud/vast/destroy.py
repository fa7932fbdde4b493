"""End what was rented, and nothing else: what the ledger knows is set against what the account holds (account.py).

Run as often as you like: what is gone already is a success. Nothing is called gone before it was asked for by its own
number; what the ledger does not know and carries our label is ended on a yes, and named without one. Where the list of
the account cannot be read whole, what the ledger has a number of is ended all the same, and the run ends in an error.

An instance whose request was never answered may appear in the list a little later than the request: the list is read
until the request is ``settle_s`` old. Whatever was believed gone and turns up later is ended by the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import DrafthouseError, Problem, one_problem
from .account import (
    ANYONES,
    THEIRS,
    Stray,
    copies_of,
    instances_of,
    is_instance_of,
    price_of,
    strays,
    why_unsure,
)
from .client import VastClient
from .errors import KeyRefused, VastError
from .ledger import CONSOLE, DESTROYED, GONE, INTENT, NEVER, UNSURE, NotWritten, Rental, mark_of, read, record

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance, Priced

SETTLE_S = 60.0
# So long after its deadline a box's own watch has asked to be destroyed and to be stopped, several times each.
OVERDUE_S = 600.0
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.5, 5.0
# How long a destroyed instance may still stand in the list before that is a fault: the pauses before each look.
_PAUSES_AFTER_S = (0.0, 1.0, 2.0, 4.0, 8.0)
# Asked before a stray is ended: a yes, a no, or None where nobody is there to say so. ``sure``: it is surely ours, or
# was named.
Ask = Callable[[str, bool], bool | None]


@dataclass
class Ended:
    """What became of the rentals: their labels, and for the others what to say of each."""

    destroyed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    billing: list[Problem] = field(default_factory=list)
    elsewhere: list[Problem] = field(default_factory=list)
    unwritten: list[Problem] = field(default_factory=list)
    damage: list[Problem] = field(default_factory=list)
    """Lines of the ledger that are lost: what they said was ended only where the account shows it."""
    sent: list[tuple[Rental, int, str]] = field(default_factory=list)
    """What vast.ai said is destroyed, with its number and why: the ledger has it as ended once it is seen gone."""
    unlisted: list[Rental] = field(default_factory=list)
    """What was there by its number and in no list: the list is behind, and a second instance may be on its way too."""


class StillBilling(DrafthouseError):
    """Something of ours may go on costing money: each with its price, and what ends it."""


def end(
    client: VastClient,
    ledger: Path,
    *,
    only: Collection[str] | None = None,
    why: str = "asked for",
    tell: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = SETTLE_S,
    ask: Ask = lambda question, sure: None,
) -> Ended:
    """End what this ledger rented; ``only``: those with these ids, labels or instance numbers.

    Returns what was ended, with the ledger's damage. Raises StillBilling with every instance of ours that still bills,
    that another key rented, or that ``ask`` got no yes for; NotWritten where all of them are ended and the ledger
    cannot say so; VastError where the account's list could not be read whole.
    """
    book = read(ledger)
    wanted = {one.id: one for one in book.rentals.values() if only is None or _names_of(one) & set(only)}
    ended = Ended(damage=book.damage)
    ending = _Ending(client, ledger, why, tell, sleep, clock, settle_s, ended)
    damage: list[Problem] = []
    if not only:
        damage = book.damage
    try:
        rows = client.instances()
    except KeyRefused:
        raise
    except VastError as error:
        ending.end_unlisted(wanted.values())
        billing = [*ended.billing, *ended.elsewhere]
        problems = [*error.problems, *billing, *ended.unwritten, *damage]
        if billing:
            raise StillBilling(problems) from error
        raise type(error)(problems) from error
    unknown = strays(book, rows, client.account, mark_of(ledger))
    if only is not None:
        _check_names(only, wanted, unknown)
    # An ended one is looked for too: the list may have been behind when it was believed gone. What must be waited for
    # comes last: the others cost money meanwhile, and the wait may be broken off.
    for rental in sorted(wanted.values(), key=_is_unanswered):
        rows = ending.end_rental(rental, rows)
    ending.end_strays(unknown, only, ask)
    ending.end_late_copies()
    ending.see_them_gone()
    if ended.billing or ended.elsewhere:
        raise StillBilling([*ended.billing, *ended.elsewhere, *ended.unwritten, *damage])
    if ended.unwritten:
        raise NotWritten(ended.unwritten)
    return ended


def end_copies(
    client: VastClient,
    ledger: Path,
    ids: Collection[str],
    tell: Callable[[str], None],
    sleep: Callable[[float], None],
) -> list[Problem]:
    """End what carries the label of these running rentals and is another instance; return what of it may still bill.

    A proxy that sends a create a second time makes two instances of one label, and only one is in the answer. Raises
    VastError where the account's list could not be read whole.
    """
    ending = _Ending(client, ledger, "a second instance of its label", tell, sleep)
    rows = client.instances()
    for rental in read(ledger).rentals.values():
        if rental.id not in ids:
            continue
        for row in copies_of(rental, instances_of(rental, rows, client.account)):
            ending.destroy(rental, row, ending.why)
            ending.note(DESTROYED, rental, instance=int(row["id"]), account=client.account, why=ending.why)
            # That line has the label of the one that goes on.
            ending.note(rental.state, rental, instance=rental.instance, account=rental.account)
    ending.see_them_gone(its_own=False)
    return [*ending.ended.billing, *ending.ended.unwritten]


def still_billing(rental: Rental, why: str, row: Instance | None = None) -> Problem:
    """What to say of an instance of ours that could not be ended; ``row`` is how it is listed, if it is."""
    number: object = rental.instance or "(number unknown)"
    priced: Priced = {"dph_total": rental.facts.get("price_per_hour")}
    if row:
        number = row["id"]
    if row and "dph_total" in row:
        priced = row
    return Problem(
        "rental-still-billing",
        f"instance {number} is still billing, {price_of(priced)} ({why})",
        "no rental of ours that is billing",
        f"make destroy; or end it manually at {CONSOLE}",
        rental.label,
    )


def _names_of(rental: Rental) -> set[str]:
    """What a person may call a rental by."""
    return {rental.id, rental.label, str(rental.instance)}


def _check_names(names: Collection[str], found: Mapping[str, Rental], unknown: Collection[Stray]) -> None:
    known: set[str] = set()
    for rental in found.values():
        known |= _names_of(rental)
    for stray in unknown:
        known |= stray.names
    missing = sorted(set(names) - known)
    if missing:
        raise one_problem(
            "no-such-rental",
            f"{', '.join(missing)}, not in this ledger",
            "an id, a label or an instance number of ours",
            "make destroy ARGS=--list shows them",
        )


def _is_unanswered(rental: Rental) -> bool:
    return rental.state in (INTENT, UNSURE) and rental.instance is None


def _age_s(client: VastClient, rental: Rental) -> float:
    """Seconds since a rental was asked for, 0 where a clock says that it has yet to be.

    By the provider's clock, as the list that was just read told it; lines of earlier versions have this machine's.
    """
    asked_at = rental.facts.get("asked_at")
    if isinstance(asked_at, (int, float)):
        return max(0.0, client.clock.now() - asked_at)
    return max(0.0, time.time() - rental.begun)


def _may_bill(rental: Rental, error: VastError) -> Problem:
    return still_billing(rental, f"or may be: {error.problems[0].found}")


@dataclass
class _Ending:
    """Rentals on their way out: what ends them, and in ``ended`` what became of each."""

    client: VastClient
    ledger: Path
    why: str
    tell: Callable[[str], None]
    sleep: Callable[[float], None]
    clock: Callable[[], float] = time.monotonic
    settle_s: float = SETTLE_S
    ended: Ended = field(default_factory=Ended)

    def end_rental(self, rental: Rental, rows: list[Instance]) -> list[Instance]:
        """End what is listed of a rental, or an open one by its number; return the list as it was read last."""
        try:
            rows = self._settled(rental, rows)
        except VastError as error:
            self.ended.billing.append(_may_bill(rental, error))
            return rows
        found = instances_of(rental, rows, self.client.account)
        for row in found:
            self.destroy(rental, row, self.why)
        if not found and rental.is_open:
            self._not_listed(rental)
        return rows

    def end_unlisted(self, wanted: Collection[Rental]) -> None:
        """End without a list what the ledger has a number of; what it has none of stays open, and is said."""
        for rental in wanted:
            if rental.is_open and rental.instance is None:
                self.ended.billing.append(still_billing(rental, "or may be: it cannot be found without a list"))
            elif rental.is_open:
                self._not_listed(rental)
        self.see_them_gone(has_list=False)

    def end_strays(self, unknown: Collection[Stray], only: Collection[str] | None, ask: Ask) -> None:
        """End what carries our label and is not in the ledger, on a yes; say it without one.

        Meant are those that ``only`` names, without it all that are not another clone's.
        """
        for stray in unknown:
            is_named = only is not None and bool(stray.names & set(only))
            if not is_named and (only is not None or stray.whose == THEIRS):
                continue
            if ask(f"{stray.words}. End it?", is_named or stray.whose != ANYONES):
                self.destroy(stray.rental, stray.row, "it was not in the ledger")
            else:
                self.ended.billing.append(stray.problem)

    def end_late_copies(self) -> None:
        """End second instances of requests where the list is behind: read until the requests are ``settle_s`` old."""
        waits_s = [self.settle_s - _age_s(self.client, rental) for rental in self.ended.unlisted]
        until = self.clock() + max(waits_s, default=0.0)
        while (left := until - self.clock()) > 0:
            self.sleep(min(_LOOK_EVERY_S, left))
            try:
                rows = self.client.instances()
            except VastError as error:
                self.ended.billing += [_may_bill(rental, error) for rental in self.ended.unlisted]
                return
            asked_for = {number for _, number, _ in self.ended.sent}
            for rental in self.ended.unlisted:
                for row in instances_of(rental, rows, self.client.account):
                    if int(row["id"]) not in asked_for:
                        self.destroy(rental, row, self.why)

    def see_them_gone(self, *, has_list: bool = True, its_own: bool = True) -> None:
        """Look whether what was destroyed is in no list, and nothing by its number; the rest is said to be billing.

        Only then the ledger has it as ended, where the line is ``its_own``: whoever is killed before ends it once more.
        """
        left, doubt = list(self.ended.sent), ""
        for pause in _PAUSES_AFTER_S:
            if not left:
                break
            if pause:
                self.sleep(pause)
            try:
                there: set[int] = set()
                if has_list:
                    there = {int(row["id"]) for row in self.client.instances()}
                left = [sent for sent in left if sent[1] in there or self.client.instance(sent[1]) is not None]
                doubt = "destroyed, but still there"
            except VastError as error:
                doubt = f"destroyed, but not confirmed: {error.problems[0].found}"
                break
        for sent in self.ended.sent:
            rental, number, why = sent
            if sent in left:
                self.ended.billing.append(still_billing(rental, doubt, {"id": number}))
                self.note(UNSURE, rental, instance=number, account=self.client.account)
            elif its_own:
                self.note(DESTROYED, rental, instance=number, account=self.client.account, why=why)

    # --- one rental ----------------------------------------------------------------------------------

    def destroy(self, rental: Rental, row: Instance, why: str) -> None:
        """End an instance of a rental; one that vast.ai refuses to end is said to be billing."""
        number, account = int(row["id"]), self.client.account
        if number != rental.instance:
            # Found by its label: whoever comes after a kill asks for this number, not for that of a false answer.
            self.note(UNSURE, rental, instance=number, account=account)
        try:
            was_there = self.client.destroy(number)
        except VastError as error:
            self.ended.billing.append(still_billing(rental, error.problems[0].found, row))
            return
        if was_there:
            self.ended.destroyed.append(rental.label)
            self.ended.sent.append((rental, number, why))
            self._tell_end("destroyed", rental, number)
        else:
            self.ended.gone.append(rental.label)
            self.note(GONE, rental, instance=number, account=account, why=why)
            self._tell_end("gone already", rental, number)

    def note(self, event: str, rental: Rental, **facts: Any) -> None:
        """Write down what became of a rental; a disk that is full keeps no other one from being ended."""
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

    def _tell_end(self, verb: str, rental: Rental, number: int) -> None:
        self.tell(f"{verb}: instance {number} ({rental.facts.get('profile', '?')}), label {rental.label}")

    def _settled(self, rental: Rental, rows: list[Instance]) -> list[Instance]:
        """Read the list again until it has an unanswered rental, or the request is so old that it never will."""
        if not _is_unanswered(rental):
            return rows
        pause, age = 0.0, _age_s(self.client, rental)
        until = self.clock() + self.settle_s - age
        while not instances_of(rental, rows, self.client.account) and (left := until - self.clock()) > 0:
            if not pause:
                self.tell(f"{rental.label}: requested {age:.0f} s ago, never answered; looking for it")
            pause = min(2 * pause or _FIRST_LOOK_S, _LOOK_EVERY_S)
            self.sleep(min(pause, left))
            rows = self.client.instances()
        return rows

    def _not_listed(self, rental: Rental) -> None:
        """End an open rental that no list shows, or close it: its number is asked for before it is called gone."""
        row = None
        if rental.instance is not None and rental.account in ("", self.client.account):
            try:
                row = self.client.instance(rental.instance)
            except VastError as error:
                self.ended.billing.append(_may_bill(rental, error))
                return
        if row is None:
            self._not_there(rental)
        elif is_instance_of(rental, row, self.client.account):
            self.ended.unlisted.append(rental)
            self.destroy(rental, row, self.why)
        else:
            # The label is another: it may be anybody's.
            self.ended.billing.append(still_billing(rental, f"or may be: {why_unsure(rental, row)}"))

    def _not_there(self, rental: Rental) -> None:
        """Close a rental that the account does not hold; another account's stays open."""
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
            self.note(NEVER, rental)
            self.tell(f"{rental.label}: was never created")
        else:
            self.note(GONE, rental, why=self.why)
            self._tell_end("gone already", rental, rental.instance)


# The columns of what is listed: their names in JSON, and their heads in a table.
LIST_NAMES = ("instance", "label", "profile", "status", "price_per_hour", "since", "cost", "deadline")
LIST_HEAD = ("instance", "label", "profile", "status", "$/h", "since", "$ until now", "deadline")
