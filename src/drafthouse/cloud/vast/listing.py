"""List the rented instances of an account: what each costs, when its deadline is, and which are overdue."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...cloud.deadline import deadline_of
from .account import OTHER_LEDGER, Compared, compare_with_account, instances_of
from .client import VastClient
from .clock import ends_at
from .destroy import OVERDUE_S
from .ledger import Rental, id_of, read

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance


class Listing(NamedTuple):
    """The table of this ledger's instances, and notes about everything else that was found."""

    rows: list[list[str]]  # with the columns `destroy.LIST_NAMES`
    notes: list[str]  # lines for the user
    is_unexpected: bool  # something bills that nobody expects


def list_rentals(client: VastClient, ledger: Path) -> Listing:
    """List this ledger's instances, and notes about others and about missing ones. Raises DrafthouseError."""
    instances = client.instances()
    rentals = read(ledger).rentals
    comparison = compare_with_account(client, ledger, instances)
    now = client.clock.now()
    rental_by_id: dict[int, Rental] = {}
    for rental in rentals.values():
        for instance in instances_of(rental, instances, client.account):
            rental_by_id[int(instance["id"])] = rental
    rows = []
    notes = []
    for instance in instances:
        if listed_rental := rental_by_id.get(int(instance["id"])):
            rows.append(_row(instance, listed_rental, now))
            notes.append(_overdue_note(instance, listed_rental, now))  # '' for most; left out at the end
    notes += [stray.text for stray in comparison.strays if stray.origin != OTHER_LEDGER]
    for problem in (*comparison.duplicates, *comparison.reappeared, *comparison.unlisted, *comparison.closed):
        notes.append(f"{problem.where}: {problem.found}; {problem.do}")
    notes += [f"{problem.where}: {problem.found}" for problem in comparison.damage]
    notes += _foreign_notes(instances, rental_by_id, comparison)
    for rental in rentals.values():
        if rental.is_open and rental.account not in ("", client.account):
            where = "may bill in another account: look with the key that rented it"
            notes.append(f"{rental.label} ({rental.state}) {where}")
    return Listing(rows, list(filter(None, notes)), bool(comparison.billing))


def _foreign_notes(instances: Collection[Instance], by_id: Mapping[int, Rental], comparison: Compared) -> list[str]:
    """Notes about instances that this ledger lacks; ``by_id``: its rentals, by instance number."""
    noted = {stray.number for stray in comparison.strays if stray.origin != OTHER_LEDGER}
    other_clones = []  # their instance numbers
    without_label = 0
    for instance in instances:
        instance_id = int(instance["id"])
        if instance_id in by_id or instance_id in noted:
            continue
        if id_of(instance.get("label")):
            other_clones.append(str(instance_id))
        else:
            without_label += 1
    notes = []
    if other_clones:
        notes.append(f"labelled by Drafthouse but not in this ledger, never touched: {', '.join(other_clones)}")
    if without_label:
        notes.append(f"other instances of the account, never touched: {without_label}")
    return notes


def _row(instance: Instance, rental: Rental, now: float) -> list[str]:
    """Row of the table in `Listing`; ``now``: the provider's time, unix seconds."""
    started = instance.get("start_date")
    if not isinstance(started, (int, float)):
        started = rental.begun
    hours = max(0.0, now - started) / 3600
    price = hourly_cost(instance)
    due = due_at(instance, rental)
    late = " passed" if due <= now else ""
    return [
        str(instance["id"]),
        rental.label,
        str(rental.facts.get("profile", "")),
        str(instance.get("actual_status") or "being created"),
        f"{price:.3f}",
        f"{hours:.1f} h",
        f"{price * hours:.2f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(due)) + late,
    ]


def due_at(instance: Instance, rental: Rental) -> float:
    """Deadline of an instance by the provider's clock, unix seconds."""
    # If the first ledger line of a rental is damaged, only the label has the deadline.
    deadline = rental.deadline or deadline_of(str(instance.get("label"))) or 0
    return ends_at(instance, deadline, rental.facts, rental.begun) or deadline


def _overdue_note(instance: Instance, rental: Rental, now: float) -> str:
    """Note about an instance that did not end at its deadline; '' for any other."""
    instance_id = instance["id"]
    late_s = now - due_at(instance, rental)
    if late_s < OVERDUE_S:
        return ""
    status = instance.get("actual_status") or "being created"
    state = "it is stopped, but its disk bills" if status in ("stopped", "exited") else f"it is '{status}', and bills"
    late = f"{instance_id} is {late_s / 60:.0f} min past its deadline and did not end itself"
    return f"{late}: {state}; make destroy ARGS={instance_id}"


def hourly_cost(instance: Instance) -> float:
    """Current cost of an instance in $ per hour, without traffic; a stopped instance still costs its disk.

    0 if the answer has no such price.
    """
    price = instance.get("dph_total")
    if instance.get("actual_status") in ("stopped", "exited"):
        price = instance.get("storage_total_cost")
    if not isinstance(price, (int, float)):
        return 0.0
    return float(price)
