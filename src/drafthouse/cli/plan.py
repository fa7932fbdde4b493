"""Show what a profile would do: memory, context, downloads, expected speed-up, both arms' commands.

Example:
  drafthouse plan rtx6000-qwen-eagle3 --set speculation.num_speculative_tokens=5

It changes nothing on a box and needs no GPU. It needs no network either, except for a model of the Hub without an entry
in the catalogue: a few MB of that are read, and it is added (drafthouse model add).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.exit_codes import DONE
from ..core.table import terminal_columns
from ..experiment.plan_text import plan_text
from ..experiment.verdict_cost import minutes_of
from .parser import Parser, print_json
from .profile_arguments import arguments, resolved


def options() -> Parser:
    """The argument parser of `drafthouse plan`."""
    parser = arguments(__doc__, "plan")
    parser.add_argument("--json", action="store_true", help="print the resolved profile as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan as text, or the resolved profile as JSON."""
    args = options().parse_args(argv)
    profile = resolved(args)
    if args.json:
        print_json("plan", {**profile, "experiment": {**profile["experiment"], "minutes": minutes_of(profile)}})
    else:
        print(plan_text(profile, terminal_columns()))
    return DONE
