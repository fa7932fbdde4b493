"""What an account holds, a line a rental: what it costs, when it is due, and what is overdue."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...cloud.deadline import deadline_of
from .account import THEIRS, instances_of, strays
from .client import VastClient
from .clock import ends_at
from .destroy import OVERDUE_S
from .ledger import Rental, id_of, mark_of, read

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance


def listed(client: VastClient, ledger: Path) -> tuple[list[list[str]], list[str]]:
    """Return what bills now: a row for each instance of ours, and lines about what is not ours or not found.

    Columns: instance, label, profile, status, $ an hour, since, $ until now, deadline.
    """
    book = read(ledger)
    known = book.rentals
    rows = client.instances()
    now = client.clock.now()
    account = client.account
    ours: dict[int, Rental] = {
        int(row["id"]): one for one in known.values() for row in instances_of(one, rows, account)
    }
    mine = [(row, ours[int(row["id"])]) for row in rows if int(row["id"]) in ours]
    shown = [_line(row, rental, now) for row, rental in mine]
    notes = [note for row, rental in mine if (note := _overdue(row, rental, now))]
    unknown = strays(book, rows, account, mark_of(ledger))
    notes += [one.words for one in unknown if one.whose != THEIRS]
    notes += [f"{one.where}: {one.found}" for one in book.damage]
    foreign = [row for row in rows if int(row["id"]) not in ours]
    other_house = [
        row
        for row in foreign
        if id_of(row.get("label")) and int(row["id"]) not in {one.number for one in unknown if one.whose != THEIRS}
    ]
    if other_house:
        numbers = ", ".join(str(row["id"]) for row in other_house)
        notes.append(f"labelled by Drafthouse but not in this ledger, never touched: {numbers}")
    rest = sum(id_of(row.get("label")) is None for row in foreign)
    if rest:
        notes.append(f"other instances of the account, never touched: {rest}")
    there = {one.id for one in ours.values()}
    for one in known.values():
        if one.is_open and one.id not in there:
            do = "make destroy closes it" if one.account == account else "it may bill: look with the key that rented it"
            notes.append(f"in the ledger but not in this account: {one.label} ({one.state}); {do}")
    return shown, notes


def _line(row: Instance, rental: Rental, now: float) -> list[str]:
    begun = row.get("start_date")
    hours = max(0.0, now - (begun if isinstance(begun, (int, float)) else rental.begun)) / 3600
    price, due = cost_an_hour(row), due_at(row, rental)
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
    """Return when an instance is to end by the provider's clock, unix seconds."""
    # A rental whose announcement was lost has the deadline of its label alone.
    deadline = rental.deadline or deadline_of(str(row.get("label"))) or 0
    return ends_at(row, deadline, rental.facts, rental.begun) or deadline


def _overdue(row: Instance, rental: Rental, now: float) -> str:
    """Return what to say of an instance that should have ended itself and did not, '' of any other."""
    late_s, number = now - due_at(row, rental), row["id"]
    if late_s < OVERDUE_S:
        return ""
    status = row.get("actual_status") or "being created"
    what = "it is stopped, but its disk bills" if status in ("stopped", "exited") else f"it is '{status}', and bills"
    late = f"{number} is {late_s / 60:.0f} min past its deadline and did not end itself"
    return f"{late}: {what}; make destroy ARGS={number}"


def cost_an_hour(row: Instance) -> float:
    """Return what an instance costs an hour as it stands: a stopped one still its disk. Without traffic; $."""
    prices = row.get("dph_total"), row.get("storage_total_cost")
    whole, disk = (float(price) if isinstance(price, (int, float)) else 0.0 for price in prices)
    return disk if row.get("actual_status") in ("stopped", "exited") else whole
