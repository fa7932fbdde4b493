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

from ...core.errors import Problem
from .client import VastClient
from .errors import VastError
from .ledger import CONSOLE, LABEL, Book, Rental, id_of, mark_of, read

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
        found = LABEL.fullmatch(str(self.row.get("label")))
        return Rental(self.id, int(found[2]) if found else 0, "", 0.0, instance=self.number)

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
    rows = client.instances() if rows is None else rows
    unlisted, closed, undead, copies = [], [], [], []
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
        if listed := instances_of(rental, rows, client.account):
            copies += [_copy(rental, row) for row in copies_of(rental, listed)]
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
            told = f"instance {name} may bill, {price_of(asked)}: {why_unsure(rental, asked)}"
            unlisted.append(Problem("rental-state-unknown", told, "a known owner", f"look at {CONSOLE}", rental.label))
        else:
            found = f"{name} is open in the ledger ({rental.state}), but not in the account"
            closed.append(
                Problem("rental-gone", found, "its end recorded in the ledger", "make destroy closes it", rental.label)
            )
    unknown = strays(book, rows, client.account, mark_of(ledger))
    return Compared(book.damage, unknown, unlisted, closed, undead, copies, known)


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
    known = set[int]()
    for rental in book.rentals.values():
        known |= {int(row["id"]) for row in instances_of(rental, rows, account)}
    strange = []
    for row in rows:
        rental_id = id_of(row.get("label"))
        if rental_id is not None and int(row["id"]) not in known:
            whose = ANYONES if rental_id in book.rentals else _whose(rental_id, book, mark)
            strange.append(Stray(row, rental_id, whose))
    return strange


def _whose(rental_id: str, book: Book, mark: str) -> str:
    has_mark = len(rental_id) == len(mark) + 10
    if has_mark and rental_id.startswith(mark):
        return OURS
    is_moved = any(len(one) == len(rental_id) and one[: len(mark)] == rental_id[: len(mark)] for one in book.rentals)
    return ANYONES if not has_mark or is_moved else THEIRS


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
    numbers = sorted(int(row["id"]) for row in found)
    meant = rental.instance if rental.instance in numbers else numbers[0]
    return [row for row in found if int(row["id"]) != meant]


def price_of(row: Priced) -> str:
    """Return in words what an instance costs."""
    price = row.get("dph_total")
    is_known = isinstance(price, (int, float)) and not isinstance(price, bool)
    return f"${price:.3f} an hour" if is_known else "at its hourly price"
