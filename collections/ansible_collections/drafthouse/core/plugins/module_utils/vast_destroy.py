"""End what was rented, and nothing else: what the ledger knows is set against what the account holds.

Ours is an instance whose label carries an id of this ledger, or whose number the answer to our own request named. An
instance with such a label and another number than the answer's is somebody's copy, and is left alone, as are labels of
another ledger and everything else in the account. A number says something in its own account alone: under another key,
or at another address, ours is what has both number and label. Run as often as you like: what is gone already is a
success.

An instance whose request was never answered may appear in the list a little later than the request: the list is read
until the request is ``settle_s`` old. Whatever was believed gone and turns up later is ended by the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .problems import HouseError, Problem
from .vast_client import VastClient, VastError
from .vast_ledger import DESTROYED, GONE, INTENT, NEVER, UNSURE, NotWritten, Rental, id_of, record, rentals

Row = Mapping[str, Any]
SETTLE_S = 60.0
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.5, 5.0
# How long a destroyed instance may still stand in the list before that is a fault: the pauses before each look.
_PAUSES_AFTER_S = (0.0, 1.0, 2.0, 4.0, 8.0)
CONSOLE = "https://cloud.vast.ai/instances/"


@dataclass
class Ended:
    """What became of the rentals: their labels, and for the others what to say of each."""

    destroyed: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    billing: list[Problem] = field(default_factory=list)
    elsewhere: list[Problem] = field(default_factory=list)
    unwritten: list[Problem] = field(default_factory=list)


class StillBilling(HouseError):
    """Something of ours may go on costing money: each with its price, and what ends it."""


def end(
    client: VastClient,
    ledger: Path,
    *,
    only: Collection[str] | None = None,
    why: str = "asked for",
    tell: Callable[[str], None] = print,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = SETTLE_S,
) -> Ended:
    """End what this ledger rented; ``only``: those with these ids, labels or instance numbers.

    Returns what was ended. Raises StillBilling with every instance of ours that still bills, or that another key
    rented; NotWritten where all of them are ended and the ledger cannot say so.
    """
    wanted = {one.id: one for one in rentals(ledger).values() if only is None or _is_named(one, only)}
    if only is not None:
        _check_names(only, wanted)
    ended = Ended()
    rows = client.instances()
    # An ended one is looked for too: the list may have been behind when it was believed gone. What must be waited for
    # comes last: the others cost money meanwhile, and the wait may be broken off.
    for rental in sorted(wanted.values(), key=_is_unanswered):
        rows = _settled(client, rental, rows, clock, sleep, settle_s, tell)
        found = instances_of(rental, rows, client.account)
        if not found and rental.is_open and rental.instance is not None and rental.account == client.account:
            # The list may be behind: the number that the answer named is asked for itself.
            found = [{"id": rental.instance, "label": rental.label}]
        for row in found:
            _destroy(client, ledger, rental, row, why, ended, tell)
        if not found and rental.is_open:
            _not_there(ledger, rental, client.account, ended, tell)
    _see_them_gone(client, ledger, wanted.values(), ended, sleep)
    if ended.billing or ended.elsewhere:
        raise StillBilling([*ended.billing, *ended.elsewhere, *ended.unwritten])
    if ended.unwritten:
        raise NotWritten(ended.unwritten)
    return ended


def instances_of(rental: Rental, rows: Collection[Row], account: str) -> list[Row]:
    """Return the instances in ``account`` that are this rental: by the number that we were told, else by its label."""
    labelled = [row for row in rows if row.get("label") == rental.label]
    if rental.instance is None:
        return labelled
    return [row for row in (rows if rental.account == account else labelled) if row.get("id") == rental.instance]


def still_billing(row: Row, why: str) -> Problem:
    """Return what to say of an instance of ours that could not be ended."""
    price = row.get("dph_total")
    cost = f"${float(price):.3f} an hour" if isinstance(price, (int, float)) else "at its hourly price"
    return Problem(
        f"instance {row.get('id')} still bills, {cost} ({why})",
        "nothing of ours billing",
        f"make destroy; or end it by hand at {CONSOLE}",
        str(row.get("label") or "vast.ai"),
    )


def _is_named(rental: Rental, names: Collection[str]) -> bool:
    return bool({rental.id, rental.label, str(rental.instance)} & set(names))


def _check_names(names: Collection[str], found: Mapping[str, Rental]) -> None:
    known = {name for one in found.values() for name in (one.id, one.label, str(one.instance))}
    unknown = sorted(set(names) - known)
    if unknown:
        raise HouseError(
            Problem(
                f"{', '.join(unknown)}, which this ledger did not rent",
                "an id, a label or an instance number of ours",
                "make destroy ARGS=--list shows them",
            )
        )


def _is_unanswered(rental: Rental) -> bool:
    return rental.state in (INTENT, UNSURE) and rental.instance is None


def _settled(
    client: VastClient,
    rental: Rental,
    rows: list[dict[str, Any]],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    settle_s: float,
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Read the list again until it has an unanswered rental, or the request is so old that it never will."""
    if not _is_unanswered(rental):
        return rows
    pause = 0.0
    while not instances_of(rental, rows, client.account) and (left := rental.begun + settle_s - clock()) > 0:
        if not pause:
            tell(f"{rental.label}: asked for {clock() - rental.begun:.0f} s ago and never answered; looking for it")
        pause = min(2 * pause or _FIRST_LOOK_S, _LOOK_EVERY_S)
        sleep(min(pause, left))
        rows = client.instances()
    return rows


def _destroy(
    client: VastClient, ledger: Path, rental: Rental, row: Row, why: str, ended: Ended, tell: Callable[[str], None]
) -> None:
    number = int(row["id"])
    try:
        was_there = client.destroy(number)
    except VastError as error:
        price = {"dph_total": rental.facts.get("price_per_hour"), **row}
        ended.billing.append(still_billing(price, error.problems[0].found))
        return
    (ended.destroyed if was_there else ended.gone).append(rental.label)
    _note(ledger, DESTROYED if was_there else GONE, rental, ended, instance=number, why=why)
    word = "destroyed" if was_there else "gone already"
    tell(f"{word}: instance {number} ({rental.facts.get('profile', '?')}), label {rental.label}")


def _note(ledger: Path, event: str, rental: Rental, ended: Ended, **facts: Any) -> None:
    """Write down what became of a rental; a disk that is full keeps no other one from being ended."""
    try:
        record(ledger, event, rental.id, **facts)
    except NotWritten as error:
        ended.unwritten.append(
            Problem(
                f"{rental.label} is ended, and {error.problems[0].found}",
                "a line of the ledger that says so",
                "free the disk, then make destroy once more: it finds it gone",
                str(ledger),
            )
        )


def _not_there(ledger: Path, rental: Rental, account: str, ended: Ended, tell: Callable[[str], None]) -> None:
    """Close a rental that the account does not hold; another account's stays open."""
    if rental.account != account:
        ended.elsewhere.append(
            Problem(
                f"rented with another key or at another address, and not in this account ({rental.instance or '?'})",
                "the key that it was rented with",
                "set VAST_API_KEY (and VAST_URL) to that one, then make destroy again; it bills until its deadline",
                rental.label,
            )
        )
        return
    ended.gone.append(rental.label)
    _note(ledger, NEVER, rental, ended)
    tell(f"{rental.label}: was never made")


def _see_them_gone(
    client: VastClient, ledger: Path, wanted: Collection[Rental], ended: Ended, sleep: Callable[[float], None]
) -> None:
    """Look whether what was destroyed has left the list; what has not is said to be billing still."""
    if not ended.destroyed:
        return
    names = set(ended.destroyed)
    left: list[tuple[Rental, Row]] = []
    for pause in _PAUSES_AFTER_S:
        if pause:
            sleep(pause)
        rows = client.instances()
        left = [(one, row) for one in wanted if one.label in names for row in instances_of(one, rows, client.account)]
        if not left:
            return
    for rental, row in left:
        ended.billing.append(still_billing(row, "destroyed, and it still stands in the account's list"))
        _note(ledger, UNSURE, rental, ended)


def listed(
    client: VastClient, ledger: Path, clock: Callable[[], float] = time.time
) -> tuple[list[list[str]], list[str]]:
    """Return what bills now: a row for each instance of ours, and lines about what is not ours or not found.

    Columns: instance, label, profile, status, $ an hour, since, $ until now, deadline.
    """
    known = rentals(ledger)
    rows = client.instances()
    now = clock()
    account = client.account
    ours: dict[int, Rental] = {
        int(row["id"]): one for one in known.values() for row in instances_of(one, rows, account)
    }
    shown = [_line(row, ours[int(row["id"])], now) for row in rows if int(row["id"]) in ours]
    notes = []
    foreign = [row for row in rows if int(row["id"]) not in ours]
    other_house = [row for row in foreign if id_of(row.get("label"))]
    if other_house:
        numbers = ", ".join(str(row["id"]) for row in other_house)
        notes.append(f"with a label of Drafthouse, but not of this ledger, and so never touched: {numbers}")
    if len(foreign) > len(other_house):
        notes.append(f"other instances of the account, never touched: {len(foreign) - len(other_house)}")
    there = {one.id for one in ours.values()}
    for one in known.values():
        if one.is_open and one.id not in there:
            do = "make destroy closes it" if one.account == account else "it may bill: look with the key that rented it"
            notes.append(f"in the ledger and not in this account: {one.label} ({one.state}); {do}")
    return shown, notes


LIST_HEAD = ("instance", "label", "profile", "status", "$/h", "since", "$ until now", "deadline")


def _line(row: Row, rental: Rental, now: float) -> list[str]:
    begun = row.get("start_date")
    hours = max(0.0, now - (begun if isinstance(begun, (int, float)) else rental.begun)) / 3600
    price = cost_an_hour(row)
    late = " passed" if rental.deadline <= now else ""
    return [
        str(row["id"]),
        rental.label,
        str(rental.facts.get("profile", "")),
        str(row.get("actual_status") or "being made"),
        f"{price:.3f}",
        f"{hours:.1f} h",
        f"{price * hours:.2f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(rental.deadline)) + late,
    ]


def cost_an_hour(row: Row) -> float:
    """Return what an instance costs an hour as it stands: a stopped one still its disk. Without traffic; $."""
    whole, disk = (
        float(row[key]) if isinstance(row.get(key), (int, float)) else 0.0
        for key in ("dph_total", "storage_total_cost")
    )
    return disk if row.get("actual_status") in ("stopped", "exited") else whole
