"""Serve a profile on the boxes of its inventory, measure it without and with speculation, and judge: site.yml.

Examples:
  drafthouse run cpu-smollm2-ngram
  drafthouse run rtx6000-qwen-eagle3 --set speculation.num_speculative_tokens=5 -- --limit lab
  drafthouse run h100-llama33-draft3b --inventory vastai --destroy on-success

What stands behind -- goes to ansible-playbook. Ctrl-C stops what the run has started; a server that served before it
stays, or comes back.

Exit status: the playbook's; 130 when it was stopped; 2 on a problem (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import for_profile, run_for_profile


def options() -> Parser:
    """Return the parser."""
    parser = for_profile(__doc__, "run")
    parser.add_argument("--stop-after", action="store_true", help="stop every server when the run has ended, too")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run site.yml; return its exit status."""
    given = options().parse_args(argv)
    return run_for_profile(given, ["site.yml"], {}, stop_after=given.stop_after)
