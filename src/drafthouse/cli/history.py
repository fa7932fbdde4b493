"""Show what a box served, when, and why it ended.

Examples:
  drafthouse history
  drafthouse history --inventory workstation -- --limit lab

Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import on_inventory, play


def options() -> Parser:
    """Return the parser."""
    return on_inventory(__doc__, "history")


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return play(["playbooks/history.yml"], given.inventory, {}, given.words)
