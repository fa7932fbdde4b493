#!/usr/bin/env python3
"""End every instance that this clone rented at vast.ai, and none that it did not.

Examples:
  scripts/destroy.py                     (all of ours)
  scripts/destroy.py 31000001            (one: its number, its id, or its label)
  scripts/destroy.py --list              (what bills now, what it costs, and what it has cost until now; ends nothing)

Ours is what the ledger names (rentals/ledger.jsonl, or below DRAFTHOUSE_STATE), also where the answer to the request
was lost. Run it as often as you like.

Exit status: 0 nothing of ours bills (of those named, where some are); 2 something may (found, needed, do), or vast.ai
could not be asked; 130 stopped by Ctrl-C, with what may still bill.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from _clone import parser_of, run
from _say import say
from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError
from ansible_collections.drafthouse.core.plugins.module_utils.state import state_folder
from ansible_collections.drafthouse.core.plugins.module_utils.tables import table
from ansible_collections.drafthouse.core.plugins.module_utils.vast_client import (
    DEFAULT_URL,
    VastClient,
    key_of_environment,
)
from ansible_collections.drafthouse.core.plugins.module_utils.vast_destroy import LIST_HEAD, SETTLE_S, end, listed
from ansible_collections.drafthouse.core.plugins.module_utils.vast_ledger import FILE, Rental, rentals


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", metavar="WHICH", help="instance number, id or label (default: all of ours)")
    parser.add_argument("--list", action="store_true", help="say what bills, and end nothing")
    parser.add_argument(
        "--settle-s",
        type=float,
        default=SETTLE_S,
        help="how long after a request that was never answered its instance may appear (%(default)g)",
    )
    return parser.parse_args(argv)


def unseen(open_ones: Sequence[Rental]) -> str:
    """Return what the ledger alone says may bill, where vast.ai cannot be asked."""
    lines = [
        f"  {one.label}: instance {one.instance or 'never told'}, ${one.facts.get('price_per_hour', '?')} an hour"
        for one in open_ones
    ]
    return "\n".join(["", "by the ledger these may bill (end them at https://cloud.vast.ai/instances/):", *lines])


def main() -> int:
    """End what is ours, or list what bills."""
    given = arguments()
    ledger = state_folder() / FILE
    try:
        client = VastClient(key_of_environment(os.environ, Path.home()), os.environ.get("VAST_URL") or DEFAULT_URL)
        if given.list:
            rows, notes = listed(client, ledger)
            say(table(LIST_HEAD, rows, width=44) if rows else "nothing of ours bills in this account")
            if notes:
                say("\n".join(["", *notes]))
            return 0
        ended = end(client, ledger, only=given.names or None, tell=say, settle_s=given.settle_s)
    except (HouseError, KeyboardInterrupt) as error:
        left = [one for one in rentals(ledger).values() if one.is_open]
        if left:
            say(unseen(left))
        if isinstance(error, KeyboardInterrupt):
            return 130
        raise
    if not ended.destroyed:
        say("nothing of that bills" if given.names else "nothing of ours bills")
    return 0


if __name__ == "__main__":
    run(main)
