"""The ledger and the account's list, held against each other, both ways.

Ours is an instance whose label carries an id of this ledger, or whose number the answer to our own request named. An
instance with such a label and another number than the answer's is somebody's copy. A number says something in its own
account alone: under another key, or at another address, ours is what has both number and label; so it is where no
checksum vouches for the number.

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

from ...core.errors import Problem
from .client import VastClient
from .errors import VastError
from .ledger import CONSOLE, DESTROYED, LABEL, Book, Rental, id_of, mark_of, read

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
        """Return the instance's number."""
        return int(self.row["id"])

    @property
    def rental(self) -> Rental:
        """Return what a ledger would know of it."""
        found = LABEL.fullmatch(str(self.row.get("label")))
        return Rental(self.id, int(found[2]) if found else 0, "", 0.0, instance=self.number)

    @property
    def names(self) -> set[str]:
        """Return what a person may call it by."""
        return {self.id, str(self.row.get("label")), str(self.number)}

    @property
    def words(self) -> str:
        """Return what it is, what it costs, and why it is told."""
        return f"instance {self.number} ({self.row.get('label')}) bills, {price_of(self.row)}: {_WHY[self.whose]}"

    @property
    def problem(self) -> Problem:
        """Return what to say of it where it is left as it is."""
        end = f"make destroy ARGS={self.number} YES=1 ends it"
        do = f"{end}; so does make destroy, confirmed with yes" if self.whose == OURS else f"{end}, if it is yours"
        return Problem(
            "rental-still-billing",
            self.words,
            "every instance with our label in the ledger",
            f"{do}; or look at {CONSOLE}",
        )


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
    known: int = 0
    """How many instances of the account are in the ledger."""

    @property
    def billing(self) -> list[Problem]:
        """Return what costs money, or may, that nobody counts on."""
        return [
            *(one.problem for one in self.strays if one.whose != THEIRS),
            *self.unlisted,
            *self.undead,
            *self.damage,
        ]


def compared(client: VastClient, ledger: Path, rows: Collection[Instance] | None = None) -> Compared:
    """Hold the ledger against what the account lists (``rows``, where that was read already).

    Raises DrafthouseError.
    """
    book = read(ledger)
    rows = client.instances() if rows is None else rows
    unlisted, closed, undead = [], [], []
    known = sum(any(is_instance_of(one, row, client.account) for one in book.rentals.values()) for row in rows)
    for rental in book.rentals.values():
        for shown in () if rental.is_open else instances_of(rental, rows, client.account):
            found = f"instance {shown['id']} bills, {price_of(shown)}, but the ledger has it as ended ({rental.state})"
            undead.append(
                Problem(
                    "rental-still-billing",
                    found,
                    "no rental of ours that is billing",
                    f"make destroy ARGS={shown['id']}",
                    rental.label,
                )
            )
        if not rental.is_open or rental.account not in ("", client.account):
            continue
        if instances_of(rental, rows, client.account):
            continue
        name = rental.instance or rental.label
        try:
            asked = client.instance(rental.instance) if rental.instance is not None else None
        except VastError as error:
            found = f"instance {name} may bill: {error.problems[0].found}"
            unlisted.append(
                Problem("rental-state-unknown", found, "an answer about it", f"make destroy ARGS={name}", rental.label)
            )
            continue
        if asked is not None and is_instance_of(rental, asked, client.account):
            found = f"instance {name} bills, {price_of(asked)}, but vast.ai's list does not show it"
            unlisted.append(
                Problem(
                    "rental-still-billing", found, "a list of all of ours", f"make destroy ARGS={name}", rental.label
                )
            )
        elif asked is not None:
            why = "its number in the ledger has no checksum, and its label differs"
            found = f"instance {name} may bill, {price_of(asked)}: {why}"
            unlisted.append(Problem("rental-state-unknown", found, "a known owner", f"look at {CONSOLE}", rental.label))
        else:
            found = f"{name} is open in the ledger ({rental.state}), but not in the account"
            closed.append(
                Problem("rental-gone", found, "its end recorded in the ledger", "make destroy closes it", rental.label)
            )
    return Compared(book.damage, strays(book, rows, client.account, mark_of(ledger)), unlisted, closed, undead, known)


def strays(book: Book, rows: Collection[Instance], account: str, mark: str) -> list[Stray]:
    """Return what is listed with a label of Drafthouse and is no rental of this ledger, nor a copy of one."""
    mine = {one.id: instances_of(one, rows, account) for one in book.rentals.values()}
    known = {int(row["id"]) for found in mine.values() for row in found}
    strange = []
    for row in rows:
        rental_id = id_of(row.get("label"))
        if rental_id is None or int(row["id"]) in known:
            continue
        rental = book.rentals.get(rental_id)
        has_number = rental and rental.instance is not None and rental.sealed
        if rental and (mine[rental_id] or rental.state == DESTROYED or has_number):
            continue  # a copy: the one that was rented has another number, or was ended
        strange.append(Stray(row, rental_id, ANYONES if rental else _whose(rental_id, book, mark)))
    return strange


def _whose(rental_id: str, book: Book, mark: str) -> str:
    has_mark = len(rental_id) == len(mark) + 10
    if has_mark and rental_id.startswith(mark):
        return OURS
    is_moved = any(len(one) == len(rental_id) and one[: len(mark)] == rental_id[: len(mark)] for one in book.rentals)
    return ANYONES if not has_mark or is_moved else THEIRS


def instances_of(rental: Rental, rows: Collection[Instance], account: str) -> list[Instance]:
    """Return the instances in ``account`` that are this rental: by the number that we were told, else by its label."""
    return [row for row in rows if is_instance_of(rental, row, account)]


def is_instance_of(rental: Rental, row: Instance, account: str) -> bool:
    """Tell whether an instance of ``account`` is this rental."""
    is_labelled = id_of(row.get("label")) == rental.id
    if rental.instance is None:
        return is_labelled
    return row.get("id") == rental.instance and (is_labelled or (rental.sealed and rental.account == account))


def price_of(row: Priced) -> str:
    """Return in words what an instance costs."""
    price = row.get("dph_total")
    is_known = isinstance(price, (int, float)) and not isinstance(price, bool)
    return f"${price:.3f} an hour" if is_known else "at its hourly price"
