"""Destroy every vast.ai instance that this clone rented, and no other.

Examples:
  drafthouse destroy                     (all of ours)
  drafthouse destroy 31000001            (one: its number, id or label)
  drafthouse destroy --list              (show what is billing, its price and its cost so far; destroy nothing)
  drafthouse destroy --yes               (also instances with our label that are not in the ledger, without asking)

Ours are the instances in the ledger (rentals/ledger.jsonl, or below DRAFTHOUSE_STATE), even if the answer to the
request was lost. Instances with the label of this folder that are not in its ledger are destroyed after confirmation.
Instances that may belong to another clone are destroyed after confirmation at a terminal, or with --yes if their number
is given. The command may be repeated.

Exit status: 0 nothing of ours bills (of the named ones, if any are named); 1 --list found instances that are not in the
ledger, or a damaged line; 2 something may bill (found, needed, do), a ledger line is damaged, or vast.ai's list is
incomplete; 130 stopped by Ctrl-C, with what may still bill.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..cloud.vast.client import DEFAULT_URL, NO_KEY, VastClient, key_of_environment
from ..cloud.vast.destroy import LIST_HEAD, LIST_NAMES, SETTLE_S, end_rentals
from ..cloud.vast.ledger import CONSOLE, FILE, Rental, read
from ..cloud.vast.listing import list_rentals
from ..cloud.vast.local_state import state_folder
from ..core.errors import DrafthouseError
from ..core.exit_codes import DONE, INTERRUPTED, WARNED
from ..core.table import WHOLE, table
from .parser import Parser, parser_of, print_json, records
from .say import confirmed, say


def options() -> Parser:
    """The argument parser of `drafthouse destroy`."""
    parser = parser_of(__doc__, "destroy")
    parser.add_argument("names", nargs="*", metavar="WHICH", help="instance number, id or label (default: all of ours)")
    parser.add_argument("--list", action="store_true", help="show what is billing, and destroy nothing")
    parser.add_argument("--json", action="store_true", help="print --list as JSON")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation (see below)")
    parser.add_argument(
        "--settle-s",
        type=float,
        default=SETTLE_S,
        help="seconds until the instance of an unanswered request must appear (default: %(default)g)",
    )
    return parser


def billing_by_ledger(rentals: Iterable[Rental]) -> str:
    """The rentals that may bill according to the ledger alone, as text, for when vast.ai's list cannot be read."""
    lines = []
    for rental in rentals:
        if rental.is_open:
            price = rental.facts.get("price_per_hour", "?")
            lines.append(f"  {rental.label}: instance {rental.instance or 'unknown'}, ${price} an hour")
    if not lines:
        return f"\naccording to the ledger, nothing of ours bills; {CONSOLE} shows what really does"
    return "\n".join(["", f"according to the ledger, these may bill (end them at {CONSOLE}):", *lines])


def nothing_rented(ledger: Path, *, as_json: bool) -> int:
    """Print that this clone has rented nothing; an empty ledger proves it without a key. Return the exit status."""
    notes = [
        f"nothing was rented from here: {ledger} has no entry",
        f"vast.ai was not asked, as there is no key; {CONSOLE} shows what bills in your account",
    ]
    if as_json:
        print_json("rentals", {"billing": [], "notes": notes})
    else:
        say("\n".join(notes))
    return DONE


def show(client: VastClient, ledger: Path, as_json: bool) -> int:
    """Print the instances that bill, with price and cost; return WARNED where one is not in the ledger."""
    rows, notes, is_unexpected = list_rentals(client, ledger)
    status = WARNED if is_unexpected else DONE
    if as_json:
        print_json("rentals", {"billing": records(LIST_NAMES, rows), "notes": notes})
        return status
    if rows:
        say(table(LIST_HEAD, rows, WHOLE))
    else:
        say("nothing of ours bills in this account")
    if notes:
        say("\n".join(["", *notes]))
    return status


def act(
    args: argparse.Namespace,
    client: VastClient,
    ledger: Path,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Destroy this clone's instances; return the exit status. Raises DrafthouseError with those that may still bill."""

    def ask(question: str, sure: bool) -> bool | None:
        """The user's answer, None without a terminal; --yes answers where ``sure``: our label, or a named instance."""
        if args.yes and sure:
            return True
        return confirmed(question)

    try:
        ended = end_rentals(
            client,
            ledger,
            only=args.names or None,
            tell=say,
            clock=clock,
            sleep=sleep,
            settle_s=args.settle_s,
            ask=ask,
        )
    except (DrafthouseError, KeyboardInterrupt) as error:
        say(billing_by_ledger(read(ledger).rentals.values()))
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        raise
    if ended.damage:
        raise DrafthouseError(ended.damage)
    if not ended.destroyed:
        say("nothing of that bills" if args.names else "nothing of ours bills")
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Destroy this clone's instances, or list those that bill."""
    args = options().parse_args(argv)
    ledger = state_folder() / FILE
    try:
        client = VastClient(key_of_environment(os.environ, Path.home()), os.environ.get("VAST_URL") or DEFAULT_URL)
    except DrafthouseError as error:
        book = read(ledger)
        if error.problems[0].code == NO_KEY and not (book.rentals or book.damage or args.names):
            return nothing_rented(ledger, as_json=args.list and args.json)
        say(billing_by_ledger(book.rentals.values()))
        raise
    if args.list:
        return show(client, ledger, args.json)
    return act(args, client, ledger)
