"""What an account holds, a line a rental: what it costs, when it is due, and what is overdue."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...cloud.deadline import deadline_of
from .account import THEIRS, Compared, compared, instances_of
from .client import VastClient
from .clock import ends_at
from .destroy import OVERDUE_S
from .ledger import Rental, id_of, read

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance


class Listing(NamedTuple):
    """What one read of the account shows: a row for each instance of ours, notes, and whether something bills unknown.

    The columns of a row are `destroy.LIST_NAMES`.
    """

    rows: list[list[str]]
    notes: list[str]
    is_unexpected: bool


def listed(client: VastClient, ledger: Path) -> Listing:
    """What bills now, and what is not ours or was not found. Raises DrafthouseError."""
    instances = client.instances()
    rentals = read(ledger).rentals
    found = compared(client, ledger, instances)
    now = client.clock.now()
    ours: dict[int, Rental] = {}
    for rental in rentals.values():
        for row in instances_of(rental, instances, client.account):
            ours[int(row["id"])] = rental
    rows, notes = [], []
    for row in instances:
        if mine := ours.get(int(row["id"])):
            rows.append(_line(row, mine, now))
            notes.append(_overdue(row, mine, now))
    notes += [stray.words for stray in found.strays if stray.whose != THEIRS]
    for problem in (*found.copies, *found.undead, *found.unlisted, *found.closed):
        notes.append(f"{problem.where}: {problem.found}; {problem.do}")
    notes += [f"{problem.where}: {problem.found}" for problem in found.damage]
    notes += _foreign(instances, ours, found)
    for rental in rentals.values():
        if rental.is_open and rental.account not in ("", client.account):
            where = "may bill in another account: look with the key that rented it"
            notes.append(f"{rental.label} ({rental.state}) {where}")
    return Listing(rows, list(filter(None, notes)), bool(found.billing))


def _foreign(instances: Collection[Instance], ours: Mapping[int, Rental], found: Compared) -> list[str]:
    """Notes about the account's instances that are not ours, which nothing of ours touches."""
    listed_above = {stray.number for stray in found.strays if stray.whose != THEIRS}
    other_clones, others = [], 0
    for row in instances:
        number = int(row["id"])
        if number in ours or number in listed_above:
            continue
        if id_of(row.get("label")):
            other_clones.append(str(number))
        else:
            others += 1
    notes = []
    if other_clones:
        notes.append(f"labelled by Drafthouse but not in this ledger, never touched: {', '.join(other_clones)}")
    if others:
        notes.append(f"other instances of the account, never touched: {others}")
    return notes


def _line(row: Instance, rental: Rental, now: float) -> list[str]:
    begun = row.get("start_date")
    if not isinstance(begun, (int, float)):
        begun = rental.begun
    hours, price, due = max(0.0, now - begun) / 3600, cost_an_hour(row), due_at(row, rental)
    late = " passed" if due <= now else ""
    return [
        str(row["id"]),
        rental.label,
        str(rental.facts.get("profile", "")),
        str(row.get("actual_status") or "being created"),
        f"{price:.3f}",
        f"{hours:.1f} h",
        f"{price * hours:.2f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(due)) + late,
    ]


def due_at(row: Instance, rental: Rental) -> float:
    """The end of an instance's time by the provider's clock, unix seconds."""
    # A rental whose announcement was lost has the deadline of its label alone.
    deadline = rental.deadline or deadline_of(str(row.get("label"))) or 0
    return ends_at(row, deadline, rental.facts, rental.begun) or deadline


def _overdue(row: Instance, rental: Rental, now: float) -> str:
    """What to say of an instance that should have ended itself and did not, '' of any other."""
    late_s, number = now - due_at(row, rental), row["id"]
    if late_s < OVERDUE_S:
        return ""
    status = row.get("actual_status") or "being created"
    what = "it is stopped, but its disk bills" if status in ("stopped", "exited") else f"it is '{status}', and bills"
    late = f"{number} is {late_s / 60:.0f} min past its deadline and did not end itself"
    return f"{late}: {what}; make destroy ARGS={number}"


def cost_an_hour(row: Instance) -> float:
    """What an instance costs an hour as it stands: a stopped one still its disk. Without traffic; $."""
    price = row.get("dph_total")
    if row.get("actual_status") in ("stopped", "exited"):
        price = row.get("storage_total_cost")
    if not isinstance(price, (int, float)):
        return 0.0
    return float(price)
