"""Read every byte of a profile's weights, compare it with its hash, and download damaged files again.

Examples:
  drafthouse verify cpu-smollm2-ngram
  drafthouse verify h100-llama33-draft3b --inventory workstation

Words after -- are passed to ansible-playbook.

Exit status: the playbook's; 130 stopped; 2 an error (docs/exit-codes.md).
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
