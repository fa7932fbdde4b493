"""Read every byte of a profile's weights again, compare it with its hash, and fetch anew what is damaged.

Examples:
  drafthouse verify cpu-smollm2-ngram
  drafthouse verify h100-llama33-draft3b --inventory workstation

What stands behind -- goes to ansible-playbook.

Exit status: the playbook's; 130 when it was stopped; 2 on a problem (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import for_profile, run_for_profile
from .weights import PARTS, PLAYBOOKS


def options() -> Parser:
    """Return the parser."""
    return for_profile(__doc__, "verify")


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return run_for_profile(given, PLAYBOOKS, {**PARTS, "verify": True})
