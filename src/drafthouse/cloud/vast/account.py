"""Compare the ledger of rentals with the account's list of instances, in both directions.

An instance belongs to a rental of this ledger if one of these holds:

- Its label has the rental's id, and the id has this ledger's mark (`mark_of`). A create request that a proxy repeats
  makes two instances with one label, of which the answer names only one; both belong to the rental.
- Its label has the rental's id without the mark (from an earlier version, or after the ledger was moved), and its
  number is the one in the answer to the create request.
- It has no label, its number is the one in the answer, the account is the same, and the ledger line has a checksum.

A number alone never counts more than another label, so that a wrong answer cannot end someone else's instance. An
instance with a Drafthouse label that this ledger does not have is a `Stray`; its origin follows from the label's mark.
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

# Origins of a stray, by the mark in its label.
THIS_LEDGER = "ours"  # this ledger's mark, but its line was lost
UNKNOWN_OWNER = "anyones"  # no mark (an earlier version), or one that other ids of this moved or copied ledger have
OTHER_LEDGER = "theirs"  # any other mark; such a stray is left alone
_WHY = {  # by origin: why a stray is reported
    THIS_LEDGER: "it was rented from this folder, but the ledger has no record of it",
    UNKNOWN_OWNER: "this ledger has no record of it, and its owner is unknown",
    OTHER_LEDGER: "another clone, user or machine rented it",
}


@dataclass(frozen=True)
class Stray:
    """An instance with a Drafthouse label that this ledger does not have."""

    box: Instance
    id: str  # of the rental, in the label
    origin: str  # THIS_LEDGER, UNKNOWN_OWNER or OTHER_LEDGER

    @property
    def number(self) -> int:
        """Number of the instance at vast.ai."""
        return int(self.box["id"])

    @property
    def rental(self) -> Rental:
        """Rental as a ledger would describe it."""
        deadline = deadline_of(str(self.box.get("label"))) or 0
        return Rental(self.id, deadline, account="", begun=0.0, instance=self.number)

    @property
    def names(self) -> set[str]:
        """Names by which a user may refer to it."""
        return {self.id, str(self.box.get("label")), str(self.number)}

    @property
    def text(self) -> str:
        """Description with the price and the reason why it is reported."""
        return f"instance {self.number} ({self.box.get('label')}) bills, {price_of(self.box)}: {_WHY[self.origin]}"

    @property
    def problem(self) -> Problem:
        """Problem to report if the instance is not ended."""
        do = f"make destroy ARGS={self.number} YES=1 ends it"
        do += "; so does make destroy, confirmed with yes" if self.origin == THIS_LEDGER else ", if it is yours"
        needed = "every instance with our label in the ledger"
        return Problem("rental-still-billing", self.text, needed, f"{do}; or look at {CONSOLE}")


@dataclass(frozen=True)
class Compared:
    """Differences between the ledger and the account."""

    damage: list[Problem]
    """Damaged lines of the ledger."""
    strays: list[Stray]
    unlisted: list[Problem]
    """Open in the ledger and not in the list, but the instance exists, or may exist, under its number."""
    closed: list[Problem]
    """Open in the ledger, but gone from the account."""
    reappeared: list[Problem]
    """Ended according to the ledger, but listed: ending it had no effect, or it appeared in the list late."""
    duplicates: list[Problem]
    """Further instances with the label of a rental, beside the one that the answer to the create request named."""
    known: int = 0
    """Number of instances of the account that belong to rentals of the ledger."""

    @property
    def billing(self) -> list[Problem]:
        """Problems for everything that costs money unexpectedly, or may do so; strays of other ledgers do not count."""
        return [
            *(stray.problem for stray in self.strays if stray.origin != OTHER_LEDGER),
            *self.unlisted,
            *self.reappeared,
            *self.duplicates,
            *self.damage,
        ]


def compare_with_account(client: VastClient, ledger: Path, instances: Collection[Instance] | None = None) -> Compared:
    """Compare the ledger with the account; ``instances`` is its list, None to request it. Raises DrafthouseError.

    Open rentals of other accounts are skipped: this account's list cannot have them.
    """
    book = read(ledger)
    if instances is None:
        instances = client.instances()
    unlisted: list[Problem] = []
    closed: list[Problem] = []
    reappeared: list[Problem] = []
    duplicates: list[Problem] = []
    for rental in book.rentals.values():
        listed = instances_of(rental, instances, client.account)
        if not rental.is_open:
            reappeared += [_reappeared_problem(rental, instance) for instance in listed]
        elif rental.account not in ("", client.account):
            continue
        elif listed:
            duplicates += [_duplicate_problem(rental, instance) for instance in duplicates_of(rental, listed)]
        else:
            problem = _unlisted_problem(client, rental)
            (closed if problem.code == "rental-gone" else unlisted).append(problem)
    return Compared(
        damage=book.damage,
        strays=find_strays(book, instances, client.account, mark_of(ledger)),
        unlisted=unlisted,
        closed=closed,
        reappeared=reappeared,
        duplicates=duplicates,
        known=len(_known_ids(book, instances, client.account)),
    )


def _reappeared_problem(rental: Rental, instance: Instance) -> Problem:
    found = f"instance {instance['id']} bills, {price_of(instance)}, but the ledger has it as ended ({rental.state})"
    do = f"make destroy ARGS={instance['id']}"
    return Problem("rental-still-billing", found, "no rental of ours that is billing", do, rental.label)


def _unlisted_problem(client: VastClient, rental: Rental) -> Problem:
    """Problem for an open rental that is not listed: it bills, it may bill, or it is gone (code ``rental-gone``)."""
    name = rental.instance or rental.label
    instance = None
    try:
        if rental.instance is not None:
            instance = client.instance(rental.instance)
    except VastError as error:
        found = f"instance {name} may bill: {error.problems[0].found}"
        return Problem("rental-state-unknown", found, "an answer about it", f"make destroy ARGS={name}", rental.label)
    if instance is None:
        found = f"{name} is open in the ledger ({rental.state}), but not in the account"
        return Problem("rental-gone", found, "its end recorded in the ledger", "make destroy closes it", rental.label)
    if is_instance_of(rental, instance, client.account):
        found = f"instance {name} bills, {price_of(instance)}, but vast.ai's list does not show it"
        do = f"make destroy ARGS={name}"
        return Problem("rental-still-billing", found, "a list of all of ours", do, rental.label)
    found = f"instance {name} may bill, {price_of(instance)}: {why_unsure(rental, instance)}"
    return Problem("rental-state-unknown", found, "a known owner", f"look at {CONSOLE}", rental.label)


def _duplicate_problem(rental: Rental, box: Instance) -> Problem:
    """Problem for a further instance of a rental."""
    number = box["id"]
    return Problem(
        "rental-still-billing",
        f"instance {number} bills, {price_of(box)}: a second one with this label (its request was repeated on its way)",
        "one instance of each label",
        f"make destroy ARGS={number}",
        rental.label,
    )


def why_unsure(rental: Rental, instance: Instance) -> str:
    """Reason why an instance with the number of ``rental`` may belong to someone else."""
    if rental.sealed:
        return f"that instance is labelled {str(instance.get('label'))!r}"
    return f"its number in the ledger has no checksum, and that instance is labelled {str(instance.get('label'))!r}"


def find_strays(book: Book, instances: Collection[Instance], account: str, mark: str) -> list[Stray]:
    """List the instances with a Drafthouse label that belong to no rental of this ledger, whose mark is ``mark``."""
    known_ids = _known_ids(book, instances, account)
    found_strays = []
    for instance in instances:
        rental_id = id_of(instance.get("label"))
        if rental_id is not None and int(instance["id"]) not in known_ids:
            found_strays.append(Stray(instance, rental_id, _origin_of(rental_id, book, mark)))
    return found_strays


def _known_ids(book: Book, instances: Collection[Instance], account: str) -> set[int]:
    """Numbers of the instances that belong to rentals of this ledger."""
    known_ids = set[int]()
    for rental in book.rentals.values():
        for instance in instances_of(rental, instances, account):
            known_ids.add(int(instance["id"]))
    return known_ids


def _origin_of(rental_id: str, book: Book, mark: str) -> str:
    """Origin of a stray from the mark in its id; ``mark`` is this ledger's."""
    if rental_id in book.rentals:  # with a wrong number, and without the mark
        return UNKNOWN_OWNER
    if has_mark(rental_id, mark):
        return THIS_LEDGER
    other_mark = rental_id[: len(mark)]
    if not has_mark(rental_id, other_mark) or any(has_mark(known_id, other_mark) for known_id in book.rentals):
        return UNKNOWN_OWNER
    return OTHER_LEDGER


def instances_of(rental: Rental, instances: Collection[Instance], account: str) -> list[Instance]:
    """Instances of ``account`` that belong to a rental: more than one if its create request was repeated."""
    return [instance for instance in instances if is_instance_of(rental, instance, account)]


def is_instance_of(rental: Rental, instance: Instance, account: str) -> bool:
    """True if an instance of ``account`` belongs to a rental; the module's docstring has the rules."""
    has_same_number = rental.instance is not None and instance.get("id") == rental.instance
    if not instance.get("label"):
        return has_same_number and rental.sealed and rental.account == account
    has_same_id = id_of(instance.get("label")) == rental.id
    return has_same_id and (rental.is_marked or rental.instance is None or has_same_number)


def duplicates_of(rental: Rental, instances: Collection[Instance]) -> list[Instance]:
    """The ``instances`` of a rental without the one that the answer named, or without the lowest number."""
    if not instances:
        return []
    ids = sorted(int(instance["id"]) for instance in instances)
    # Keep the instance that the answer named; without that, the lowest number, so that every run keeps the same one.
    kept_id = rental.instance if rental.instance in ids else ids[0]
    return [instance for instance in instances if int(instance["id"]) != kept_id]


def price_of(priced: Priced) -> str:
    """Hourly price as text; without an amount if vast.ai's answer has none."""
    price = priced.get("dph_total")
    if isinstance(price, bool) or not isinstance(price, (int, float)):
        return "at its hourly price"
    return f"${price:.3f} an hour"
