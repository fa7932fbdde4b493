"""Write a support bundle without secrets to build/support/.

Examples:
  drafthouse bundle-report
  drafthouse bundle-report --profile rtx6000-qwen-eagle3

Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import inventory_for, on_inventory, play


def options() -> Parser:
    """The argument parser of `drafthouse bundle-report`."""
    parser = on_inventory(__doc__, "bundle-report")
    parser.set_defaults(inventory=None)
    parser.add_argument("--profile", help="profile that should be served (default: the inventory's)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the playbook and return its exit status."""
    args = options().parse_args(argv)
    return play(["playbooks/bundle_report.yml"], inventory_for(args), {"profile": args.profile}, args.words)
