"""Run site.yml for a profile on the boxes of its inventory: serve, measure without and with speculation, judge.

Examples:
  drafthouse run cpu-smollm2-ngram
  drafthouse run rtx6000-qwen-eagle3 --set speculation.num_speculative_tokens=5 -- --limit lab
  drafthouse run h100-llama33-draft3b --inventory vastai --destroy on-success

Words after -- are passed to ansible-playbook. Ctrl-C stops what the run has started. A server from an earlier run keeps
serving or is restored.

Exit status: the playbook's; 130 stopped; 2 an error (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import for_profile, run_for_profile


def options() -> Parser:
    """The argument parser of `drafthouse run`."""
    parser = for_profile(__doc__, "run")
    parser.add_argument("--stop-after", action="store_true", help="also stop every server at the end")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run site.yml; return its exit status."""
    args = options().parse_args(argv)
    return run_for_profile(args, ["site.yml"], {}, stop_after=args.stop_after)
