"""Download and verify the weights of a profile on the box where it would run.

Examples:
  drafthouse weights cpu-smollm2-ngram
  drafthouse weights h100-llama33-draft3b --inventory workstation

Words after -- are passed to ansible-playbook. Afterwards the doctor checks the weights.

Exit status: the playbook's; 130 stopped; 2 an error (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.places import phases
from .parser import Parser
from .playbooks import Variables, for_profile, run_for_profile

PLAYBOOKS = phases("weights", "doctor")
PARTS: Variables = {"doctor_parts": ["weights"]}


def options() -> Parser:
    """Return the parser."""
    return for_profile(__doc__, "weights")


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return run_for_profile(given, PLAYBOOKS, PARTS)
