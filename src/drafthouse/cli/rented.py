"""Run a playbook on rented boxes, and end them when it is over: always, when it went well, or never.

Example:
  drafthouse rented --destroy always -- ansible-playbook site.yml -i vastai -e profile=h100-llama33-draft3b

Ended are the boxes that the playbook worked on, and of those only what this clone rented: also on Ctrl-C, when the
playbook fails, and when the network was gone meanwhile (it is tried for ten minutes). Where the playbook did not come
so far as to name them, all that this clone rented are meant. What still bills then is said, with the command that ends
it. After kill -9 the box itself is left, which ends at its deadline.

Exit status: the playbook's; 130 when it was stopped; 2 where something of ours may still bill that should not.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ..cloud.vast.ledger import FILE
from ..cloud.vast.local_state import state_folder
from ..cloud.vast.run_and_destroy import PATIENCE_S, POLICIES, RUN_FILE, World, around
from ..core.errors import DrafthouseError, Problem
from .parser import Parser, parser_of
from .say import say


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "rented", takes_words=True)
    parser.add_argument("--destroy", required=True, metavar="WHEN", help="always, on-success or never")
    parser.add_argument("--inventory", default="vastai", help="the inventory's name; only vastai's boxes are rented")
    parser.add_argument(
        "--patience-s", type=float, default=PATIENCE_S, help="how long to try to end them (default: %(default)g)"
    )
    return parser


def checked(given: argparse.Namespace) -> None:
    """Raise DrafthouseError for what cannot be, before anything is run."""
    if given.destroy not in POLICIES:
        raise DrafthouseError(
            Problem(
                "invalid-option",
                f"'{given.destroy}'",
                f"one of: {', '.join(POLICIES)}",
                "correct it",
                "DESTROY (--destroy)",
            )
        )
    if Path(given.inventory).name != "vastai":
        raise DrafthouseError(
            Problem(
                "conflicting-options",
                f"DESTROY={given.destroy} for the inventory '{given.inventory}'",
                "the inventory vastai: nothing else here is rented by us",
                "leave DESTROY out, or set INVENTORY=vastai",
                "DESTROY (--destroy)",
            )
        )
    if not given.words:
        raise DrafthouseError(
            Problem("no-command", "no command", "one behind --", "drafthouse rented --help shows an example")
        )


def instances_in(file: Path) -> set[str] | None:
    """Return the numbers of the instances that the playbook worked on, None where it did not come so far."""
    try:
        return {str(number) for number in json.loads(file.read_text("utf-8"))["instances"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and end what it was about."""
    given = options().parse_args(argv)
    checked(given)
    # Now, and not when the run is over: a key that is missing then would leave everything billing.
    client = VastClient(
        key_of_environment(os.environ, Path.home()), os.environ.get("VAST_URL") or DEFAULT_URL, tell=say
    )
    world = World(client, state_folder() / FILE, tell=say, patience_s=given.patience_s)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        file = Path(folder) / "run.json"
        environment = {**os.environ, RUN_FILE: str(file)}
        return around(given.words, given.destroy, world, environment, lambda: instances_in(file))
