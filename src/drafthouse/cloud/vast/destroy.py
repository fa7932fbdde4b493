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
    wanted = {one.id: one for one in book.rentals.values() if only is None or _is_named(one, only)}
    ended = Ended(damage=book.damage)
    account = client.account
    try:
        rows = client.instances()
    except KeyRefused:
        raise
    except VastError as error:
        _end_unlisted(client, ledger, wanted.values(), why, ended, tell, sleep)
        left = [*ended.billing, *ended.elsewhere]
        rest = [*ended.unwritten, *(() if only else ended.damage)]
        raise (StillBilling if left else type(error))([*error.problems, *left, *rest]) from error
    unknown = strays(book, rows, account, mark_of(ledger))
    if only is not None:
        _check_names(only, wanted, unknown)
    # An ended one is looked for too: the list may have been behind when it was believed gone. What must be waited for
    # comes last: the others cost money meanwhile, and the wait may be broken off.
    for rental in sorted(wanted.values(), key=_is_unanswered):
        try:
            rows = _settled(client, rental, rows, clock, sleep, settle_s, tell)
        except VastError as error:
            ended.billing.append(_may_bill(rental, error))
            continue
        found = instances_of(rental, rows, account)
        for row in found:
            _destroy(client, ledger, rental, row, why, ended, tell)
        if not found and rental.is_open:
            _not_listed(client, ledger, rental, why, ended, tell)
    for stray in unknown:
        is_named = only is not None and bool(stray.names & set(only))
        if is_named or (only is None and stray.whose != THEIRS):
            _end_stray(client, ledger, stray, is_named, ask, ended, tell)
    _end_late_copies(client, ledger, why, ended, tell, clock, sleep, settle_s)
    _see_them_gone(client, ledger, ended, sleep)
    if ended.billing or ended.elsewhere:
        raise StillBilling([*ended.billing, *ended.elsewhere, *ended.unwritten, *(() if only else ended.damage)])
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
    ended = Ended()
    rows = client.instances()
    for rental in read(ledger).rentals.values():
        found = instances_of(rental, rows, client.account) if rental.id in ids else []
        for row in copies_of(rental, found) if found else []:
            why = "a second instance of its label"
            _destroy(client, ledger, rental, row, why, ended, tell)
            _note(ledger, DESTROYED, rental, ended, instance=int(row["id"]), account=client.account, why=why)
            # That line has the label of the one that goes on.
            _note(ledger, rental.state, rental, ended, instance=rental.instance, account=rental.account)
    _see_them_gone(client, ledger, ended, sleep, its_own=False)
    return [*ended.billing, *ended.unwritten]


def still_billing(rental: Rental, why: str, row: Instance | None = None) -> Problem:
    """What to say of an instance of ours that could not be ended; ``row`` is how it is listed, if it is."""
    number = row["id"] if row else rental.instance or "(number unknown)"
    priced: Priced = {"dph_total": rental.facts.get("price_per_hour")}
    if row and "dph_total" in row:
        priced = row
    return Problem(
        "rental-still-billing",
        f"instance {number} is still billing, {price_of(priced)} ({why})",
        "no rental of ours that is billing",
        f"make destroy; or end it manually at {CONSOLE}",
        rental.label,
    )


def _is_named(rental: Rental, names: Collection[str]) -> bool:
    return bool({rental.id, rental.label, str(rental.instance)} & set(names))


def _check_names(names: Collection[str], found: Mapping[str, Rental], unknown: Collection[Stray]) -> None:
    known = {name for one in found.values() for name in (one.id, one.label, str(one.instance))}
    known |= {name for one in unknown for name in one.names}
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


def _settled(
    client: VastClient,
    rental: Rental,
    rows: list[Instance],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    settle_s: float,
    tell: Callable[[str], None],
) -> list[Instance]:
    """Read the list again until it has an unanswered rental, or the request is so old that it never will."""
    if not _is_unanswered(rental):
        return rows
    pause, age = 0.0, _age_s(client, rental)
    until = clock() + settle_s - age
    while not instances_of(rental, rows, client.account) and (left := until - clock()) > 0:
        if not pause:
            tell(f"{rental.label}: requested {age:.0f} s ago, never answered; looking for it")
        pause = min(2 * pause or _FIRST_LOOK_S, _LOOK_EVERY_S)
        sleep(min(pause, left))
        rows = client.instances()
    return rows


def _end_late_copies(
    client: VastClient,
    ledger: Path,
    why: str,
    ended: Ended,
    tell: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    settle_s: float,
) -> None:
    """End second instances of requests where the list is behind: it is read until the requests are ``settle_s`` old."""
    until = clock() + max((settle_s - _age_s(client, one) for one in ended.unlisted), default=0.0)
    while (left := until - clock()) > 0:
        sleep(min(_LOOK_EVERY_S, left))
        try:
            rows = client.instances()
        except VastError as error:
            ended.billing += [_may_bill(one, error) for one in ended.unlisted]
            return
        asked_for = {number for _, number, _ in ended.sent}
        for rental in ended.unlisted:
            for row in instances_of(rental, rows, client.account):
                if int(row["id"]) not in asked_for:
                    _destroy(client, ledger, rental, row, why, ended, tell)


def _age_s(client: VastClient, rental: Rental) -> float:
    """How long ago a rental was asked for, 0 where a clock says that it has yet to be.

    By the provider's clock, as the list that was just read told it; lines of earlier versions have this machine's.
    """
    asked_at = rental.facts.get("asked_at")
    passed = client.clock.now() - asked_at if isinstance(asked_at, (int, float)) else time.time() - rental.begun
    return max(0.0, passed)


def _may_bill(rental: Rental, error: VastError) -> Problem:
    return still_billing(rental, f"or may be: {error.problems[0].found}")


def _not_listed(
    client: VastClient, ledger: Path, rental: Rental, why: str, ended: Ended, tell: Callable[[str], None]
) -> None:
    """End an open rental that no list shows, or close it: its number is asked for before it is called gone."""
    row = None
    if rental.instance is not None and rental.account in ("", client.account):
        try:
            row = client.instance(rental.instance)
        except VastError as error:
            ended.billing.append(_may_bill(rental, error))
            return
    if row is not None and is_instance_of(rental, row, client.account):
        ended.unlisted.append(rental)
        _destroy(client, ledger, rental, row, why, ended, tell)
    elif row is not None:
        # The label is another: it may be anybody's.
        ended.billing.append(still_billing(rental, f"or may be: {why_unsure(rental, row)}"))
    else:
        _not_there(ledger, rental, client.account, why, ended, tell)


def _end_unlisted(
    client: VastClient,
    ledger: Path,
    wanted: Collection[Rental],
    why: str,
    ended: Ended,
    tell: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    """End without a list what the ledger has a number of; what it has none of stays open, and is said."""
    for rental in wanted:
        if rental.is_open and rental.instance is None:
            ended.billing.append(still_billing(rental, "or may be: it cannot be found without a list"))
        elif rental.is_open:
            _not_listed(client, ledger, rental, why, ended, tell)
    _see_them_gone(client, ledger, ended, sleep, has_list=False)


def _end_stray(
    client: VastClient,
    ledger: Path,
    stray: Stray,
    is_named: bool,
    ask: Ask,
    ended: Ended,
    tell: Callable[[str], None],
) -> None:
    """End what carries our label and is not in the ledger, on a yes; say it without one."""
    if ask(f"{stray.words}. End it?", is_named or stray.whose != ANYONES):
        _destroy(client, ledger, stray.rental, stray.row, "it was not in the ledger", ended, tell)
    else:
        ended.billing.append(stray.problem)


def _destroy(
    client: VastClient, ledger: Path, rental: Rental, row: Instance, why: str, ended: Ended, tell: Callable[[str], None]
) -> None:
    number = int(row["id"])
    if number != rental.instance:
        # Found by its label: whoever comes after a kill asks for this number, and not for the one of a false answer.
        _note(ledger, UNSURE, rental, ended, instance=number, account=client.account)
    try:
        was_there = client.destroy(number)
    except VastError as error:
        ended.billing.append(still_billing(rental, error.problems[0].found, row))
        return
    (ended.destroyed if was_there else ended.gone).append(rental.label)
    if was_there:
        ended.sent.append((rental, number, why))
    else:
        _note(ledger, GONE, rental, ended, instance=number, account=client.account, why=why)
    word = "destroyed" if was_there else "gone already"
    tell(f"{word}: instance {number} ({rental.facts.get('profile', '?')}), label {rental.label}")


def _note(ledger: Path, event: str, rental: Rental, ended: Ended, **facts: Any) -> None:
    """Write down what became of a rental; a disk that is full keeps no other one from being ended."""
    try:
        record(ledger, event, rental.id, **facts)
    except NotWritten as error:
        ended.unwritten.append(
            Problem(
                "ledger-unwritable",
                f"{rental.label} has ended, but {error.problems[0].found}",
                "its end recorded in the ledger",
                "free disk space, then run make destroy again: it will find the box gone",
                str(ledger),
            )
        )


def _not_there(ledger: Path, rental: Rental, account: str, why: str, ended: Ended, tell: Callable[[str], None]) -> None:
    """Close a rental that the account does not hold; another account's stays open."""
    if rental.account != account:
        whose = "rented with another key or at another address" if rental.account else "rented with an unknown key"
        ended.elsewhere.append(
            Problem(
                "rental-of-another-account",
                f"{whose}, not in this account ({rental.instance or '?'})",
                "the API key it was rented with",
                "set VAST_API_KEY (and VAST_URL) to that one, then make destroy again; it bills until its deadline",
                rental.label,
            )
        )
        return
    ended.gone.append(rental.label)
    if rental.instance is None:
        _note(ledger, NEVER, rental, ended)
        tell(f"{rental.label}: was never created")
    else:
        _note(ledger, GONE, rental, ended, why=why)
        tell(f"gone already: instance {rental.instance} ({rental.facts.get('profile', '?')}), label {rental.label}")


def _see_them_gone(
    client: VastClient,
    ledger: Path,
    ended: Ended,
    sleep: Callable[[float], None],
    *,
    has_list: bool = True,
    its_own: bool = True,
) -> None:
    """Look whether what was destroyed is in no list, and nothing by its number; what is there is said to be billing.

    Only then the ledger has it as ended, where the line is ``its_own``: whoever is killed before ends it once more.
    """
    left, why = list(ended.sent), ""
    for pause in _PAUSES_AFTER_S:
        if not left:
            break
        if pause:
            sleep(pause)
        try:
            there = {int(row["id"]) for row in client.instances()} if has_list else set()
            left = [one for one in left if one[1] in there or client.instance(one[1]) is not None]
            why = "destroyed, but still there"
        except VastError as error:
            why = f"destroyed, but not confirmed: {error.problems[0].found}"
            break
    for rental, number, asked_for in ended.sent:
        if (rental, number, asked_for) in left:
            ended.billing.append(still_billing(rental, why, {"id": number}))
            _note(ledger, UNSURE, rental, ended, instance=number, account=client.account)
        elif its_own:
            _note(ledger, DESTROYED, rental, ended, instance=number, account=client.account, why=asked_for)


#: The same in JSON.
LIST_NAMES = ("instance", "label", "profile", "status", "price_per_hour", "since", "cost", "deadline")
LIST_HEAD = ("instance", "label", "profile", "status", "$/h", "since", "$ until now", "deadline")
