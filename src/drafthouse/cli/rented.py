"""Run a playbook on rented boxes and destroy them afterwards: always, on success, or never.

Example:
  drafthouse rented --destroy always -- ansible-playbook site.yml -i vastai -e profile=h100-llama33-draft3b

It destroys the boxes that the playbook worked on, if this clone rented them, also after Ctrl-C, a failure, or a network
outage (it retries for ten minutes). If the playbook failed before it named its boxes, all rentals of this clone are
destroyed. What still bills is reported with the command that ends it. After kill -9 only the box itself remains, which
destroys itself at its deadline.

Exit status: the playbook's; 130 stopped; 2 something of ours may still bill.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ..cloud.vast.ledger import FILE
from ..cloud.vast.local_state import state_folder
from ..cloud.vast.run_and_destroy import PATIENCE_S, POLICIES, RUN_FILE, RunSetup, run_then_destroy
from ..core.errors import one_problem
from .parser import Parser, parser_of
from .say import say


def options() -> Parser:
    """The argument parser of `drafthouse rented`."""
    parser = parser_of(__doc__, "rented", takes_words=True)
    parser.add_argument("--destroy", required=True, metavar="WHEN", help="always, on-success or never")
    parser.add_argument("--inventory", default="vastai", help="inventory name; only the boxes of vastai are rented")
    parser.add_argument("--patience-s", type=float, default=PATIENCE_S, help="how long to retry (default: %(default)g)")
    return parser


def _check(command: Sequence[str], destroy: str, inventory: str) -> None:
    """Raise DrafthouseError for arguments that cannot work, before anything runs."""
    if destroy not in POLICIES:
        raise one_problem(
            "invalid-option",
            f"'{destroy}'",
            f"one of: {', '.join(POLICIES)}",
            "correct it",
            "DESTROY (--destroy)",
        )
    if Path(inventory).name != "vastai":
        raise one_problem(
            "conflicting-options",
            f"DESTROY={destroy} for the inventory '{inventory}'",
            "INVENTORY=vastai: only those boxes were rented by Drafthouse",
            "leave DESTROY out, or set INVENTORY=vastai",
            "DESTROY (--destroy)",
        )
    if not command:
        raise one_problem("no-command", "no command", "a command after --", "drafthouse rented --help shows an example")


def instances_in(file: Path) -> set[str] | None:
    """The ids of the instances that the playbook worked on; None where it ended before it wrote ``file``."""
    try:
        return set(map(str, json.loads(file.read_text("utf-8"))["instances"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that stands after `--`, then destroy its boxes as --destroy says."""
    args = options().parse_args(argv)
    return run_rented(args.words, args.destroy, args.inventory, args.patience_s)


def run_rented(command: Sequence[str], destroy: str, inventory: str, patience_s: float = PATIENCE_S) -> int:
    """Run a command, then destroy the boxes it worked on: `always`, `on-success` or `never`; return its exit status.

    Raises DrafthouseError for arguments that cannot work, and where a box may still cost money.
    """
    _check(command, destroy, inventory)
    # The key is read before the run: were it missing afterwards, the boxes could not be destroyed.
    client = VastClient(
        key_of_environment(os.environ, Path.home()), os.environ.get("VAST_URL") or DEFAULT_URL, tell=say
    )
    setup = RunSetup(client, state_folder() / FILE, tell=say, patience_s=patience_s)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        file = Path(folder) / "run.json"
        environment = {**os.environ, RUN_FILE: str(file)}
        return run_then_destroy(command, destroy, setup, environment, lambda: instances_in(file))
