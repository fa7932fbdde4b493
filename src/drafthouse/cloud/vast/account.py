"""The ledger and the account's list, held against each other, both ways.

Ours is every instance whose label carries the mark and an id of this ledger, whatever its number: a create that was
repeated on its way makes two of one label, and the answer names one of them. An id without this ledger's mark (an
earlier version's, or a ledger that was moved) is ours with the number of the answer only. An instance without a label
is ours where its number is the answer's, in the account that gave the answer and with a checksum for the line. A number
alone never outweighs another label: one false answer must not end somebody else's box.

What is listed with a label of Drafthouse and not in this ledger is a `Stray`, and whose it is stands in its label:

    ours     it has this ledger's mark (`mark_of`): the ledger has lost it
    anyones  it has no mark (an earlier version's), or that of other ids of this ledger, which was moved or copied here
    theirs   it has the mark of another clone, user or machine: it is left alone
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...cloud.deadline import deadline_of
from ...core.errors import Problem
from .client import VastClient
from .errors import VastError
from .ledger import CONSOLE, Book, Rental, has_mark, id_of, mark_of, read

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance, Priced

OURS, ANYONES, THEIRS = "ours", "anyones", "theirs"
_WHY = {
    OURS: "it was rented from this folder, but the ledger has no record of it",
    ANYONES: "this ledger has no record of it, and its owner is unknown",
    THEIRS: "another clone, user or machine rented it",
}


@dataclass(frozen=True)
class Stray:
    """An instance with a label of Drafthouse that this ledger does not know."""

    row: Instance
    id: str
    whose: str

    @property
    def number(self) -> int:
        """The instance's number."""
        return int(self.row["id"])

    @property
    def rental(self) -> Rental:
        """What a ledger would know of it."""
        return Rental(self.id, deadline_of(str(self.row.get("label"))) or 0, "", 0.0, instance=self.number)

    @property
    def names(self) -> set[str]:
        """What a person may call it by."""
        return {self.id, str(self.row.get("label")), str(self.number)}

    @property
    def words(self) -> str:
        """What it is, what it costs, and why it is told."""
        return f"instance {self.number} ({self.row.get('label')}) bills, {price_of(self.row)}: {_WHY[self.whose]}"

    @property
    def problem(self) -> Problem:
        """What to say of it where it is left as it is."""
        do = f"make destroy ARGS={self.number} YES=1 ends it"
        do += "; so does make destroy, confirmed with yes" if self.whose == OURS else ", if it is yours"
        needed = "every instance with our label in the ledger"
        return Problem("rental-still-billing", self.words, needed, f"{do}; or look at {CONSOLE}")


@dataclass(frozen=True)
class Compared:
    """What the ledger and the account do not agree on; nothing where they do."""

    damage: list[Problem]
    strays: list[Stray]
    unlisted: list[Problem]
    """Open in the ledger, not in the list, and there when it is asked for by its number."""
    closed: list[Problem]
    """Open in the ledger, and not in the account."""
    undead: list[Problem]
    """Ended by the ledger, and in the list: a program died before it saw them gone, or the end had no effect."""
    copies: list[Problem]
    """A second instance of one label, beside the one that the answer to our request named."""
    known: int = 0
    """How many instances of the account are in the ledger."""

    @property
    def billing(self) -> list[Problem]:
        """What costs money, or may, that nobody counts on."""
        return [
            *(one.problem for one in self.strays if one.whose != THEIRS),
            *self.unlisted,
            *self.undead,
            *self.copies,
            *self.damage,
        ]


def compared(client: VastClient, ledger: Path, rows: Collection[Instance] | None = None) -> Compared:
    """Hold the ledger against what the account lists (``rows``, where that was read already).

    Raises DrafthouseError.
    """
    book = read(ledger)
    if rows is None:
        rows = client.instances()
    unlisted, closed, undead, copies = list[Problem](), list[Problem](), list[Problem](), list[Problem]()
    known = len(_numbers_of(book, rows, client.account))
    for rental in book.rentals.values():
        listed = instances_of(rental, rows, client.account)
        if not rental.is_open:
            undead += [_undead(rental, row) for row in listed]
        elif rental.account not in ("", client.account):
            continue
        elif listed:
            copies += [_copy(rental, row) for row in copies_of(rental, listed)]
        else:
            problem = _not_listed(client, rental)
            (closed if problem.code == "rental-gone" else unlisted).append(problem)
    unknown = strays(book, rows, client.account, mark_of(ledger))
    return Compared(book.damage, unknown, unlisted, closed, undead, copies, known)


def _undead(rental: Rental, row: Instance) -> Problem:
    found = f"instance {row['id']} bills, {price_of(row)}, but the ledger has it as ended ({rental.state})"
    do = f"make destroy ARGS={row['id']}"
    return Problem("rental-still-billing", found, "no rental of ours that is billing", do, rental.label)


def _not_listed(client: VastClient, rental: Rental) -> Problem:
    """What an open rental is that no list shows: it bills, it may bill, or with the code ``rental-gone`` it is gone."""
    name, asked = rental.instance or rental.label, None
    try:
        if rental.instance is not None:
            asked = client.instance(rental.instance)
    except VastError as error:
        found = f"instance {name} may bill: {error.problems[0].found}"
        return Problem("rental-state-unknown", found, "an answer about it", f"make destroy ARGS={name}", rental.label)
    if asked is None:
        found = f"{name} is open in the ledger ({rental.state}), but not in the account"
        return Problem("rental-gone", found, "its end recorded in the ledger", "make destroy closes it", rental.label)
    if is_instance_of(rental, asked, client.account):
        found = f"instance {name} bills, {price_of(asked)}, but vast.ai's list does not show it"
        do = f"make destroy ARGS={name}"
        return Problem("rental-still-billing", found, "a list of all of ours", do, rental.label)
    found = f"instance {name} may bill, {price_of(asked)}: {why_unsure(rental, asked)}"
    return Problem("rental-state-unknown", found, "a known owner", f"look at {CONSOLE}", rental.label)


def _copy(rental: Rental, row: Instance) -> Problem:
    number = row["id"]
    return Problem(
        "rental-still-billing",
        f"instance {number} bills, {price_of(row)}: a second one with this label (its request was repeated on its way)",
        "one instance of each label",
        f"make destroy ARGS={number}",
        rental.label,
    )


def why_unsure(rental: Rental, row: Instance) -> str:
    """Why an instance with the number of ``rental`` is not known to be ours."""
    if rental.sealed:
        return f"that instance is labelled {str(row.get('label'))!r}"
    return f"its number in the ledger has no checksum, and that instance is labelled {str(row.get('label'))!r}"


def strays(book: Book, rows: Collection[Instance], account: str, mark: str) -> list[Stray]:
    """The instances that carry a label of Drafthouse and are no rental of this ledger."""
    known = _numbers_of(book, rows, account)
    strange = []
    for row in rows:
        rental_id = id_of(row.get("label"))
        if rental_id is not None and int(row["id"]) not in known:
            strange.append(Stray(row, rental_id, _whose(rental_id, book, mark)))
    return strange


def _numbers_of(book: Book, rows: Collection[Instance], account: str) -> set[int]:
    """The numbers of the instances that are rentals of this ledger."""
    numbers = set[int]()
    for rental in book.rentals.values():
        for row in instances_of(rental, rows, account):
            numbers.add(int(row["id"]))
    return numbers


def _whose(rental_id: str, book: Book, mark: str) -> str:
    if rental_id in book.rentals:
        return ANYONES
    if has_mark(rental_id, mark):
        return OURS
    other = rental_id[: len(mark)]
    if not has_mark(rental_id, other) or any(has_mark(known, other) for known in book.rentals):
        return ANYONES
    return THEIRS


def instances_of(rental: Rental, rows: Collection[Instance], account: str) -> list[Instance]:
    """The instances in ``account`` that are this rental: several where its request was repeated on its way."""
    return [row for row in rows if is_instance_of(rental, row, account)]


def is_instance_of(rental: Rental, row: Instance, account: str) -> bool:
    """Tell whether an instance of ``account`` is this rental: by its label, or without one by its number."""
    has_number = rental.instance is not None and row.get("id") == rental.instance
    if not row.get("label"):
        return has_number and rental.sealed and rental.account == account
    is_labelled = id_of(row.get("label")) == rental.id
    return is_labelled and (rental.is_marked or rental.instance is None or has_number)


def copies_of(rental: Rental, found: Collection[Instance]) -> list[Instance]:
    """The instances of a rental beside the one that the answer named, or beside the first where it named none."""
    if not found:
        return []
    numbers = sorted(int(row["id"]) for row in found)
    meant = rental.instance if rental.instance in numbers else numbers[0]
    return [row for row in found if int(row["id"]) != meant]


def price_of(row: Priced) -> str:
    """The price of an instance in words."""
    price = row.get("dph_total")
    if isinstance(price, bool) or not isinstance(price, (int, float)):
        return "at its hourly price"
    return f"${price:.3f} an hour"
