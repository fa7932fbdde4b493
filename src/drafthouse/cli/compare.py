"""Compare two reports: two boxes, engines, versions or dates.

A and B are folders with a report.json, or PROFILE (its newest report), PROFILE~1 (the one before), or
PROFILE/START-OF-FOLDER. Reports with different conditions are refused, or marked with --anyway. --regression 5 exits
with 2 if something in B is significantly worse by more than 5 %, for CI.

Examples:
  drafthouse compare cpu-smollm2-ngram~1 cpu-smollm2-ngram --regression 5
  drafthouse compare cpu-smollm2-ngram cpu-smollm2-ngram --json

Exit status: 0 compared, nothing is worse; 2 a regression, or a report is missing or broken; 3 refused: the conditions
differ; 4 something in A cannot be judged in B, so a regression is possible (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ..core.errors import Problem, describe
from ..core.exit_codes import CANNOT_SAY, DONE, FAILED, NOT_HERE
from ..core.table import terminal_columns
from ..profiles.upgrade_diff import THRESHOLD
from ..report.archive import find, read_kept
from ..report.compare.compared_types import Comparison
from ..report.compare.diff import compare
from ..report.compare.text import compared_markdown, compared_text
from .parser import Parser, parser_of, reports_option


def options() -> Parser:
    """The argument parser of `drafthouse compare`."""
    parser = parser_of(__doc__, "compare")
    parser.add_argument("a", metavar="A", help="the report to compare with")
    parser.add_argument("b", metavar="B", help="the report to judge")
    parser.add_argument("--anyway", action="store_true", help="compare despite different conditions, which are marked")
    parser.add_argument(
        "--regression", type=per_cent, metavar="PERCENT", help="exit with 2 if B is worse by more than this"
    )
    parser.add_argument(
        "--format", choices=("text", "markdown", "json"), default="text", help="output format (default: text)"
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    reports_option(parser)
    return parser


def regression_option(parser: Parser, what: str) -> None:
    """Add --regression, by how much a new report may be worse than the old one; ``what`` is its help text."""
    parser.add_argument(
        "--regression", type=per_cent, default=THRESHOLD, metavar="PERCENT", help=f"{what} (default: 5)"
    )


def per_cent(text: str) -> float:
    """The fraction of a percentage, as an argument's type: ``5`` and ``5%`` are 0.05."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 to 100")
    return value / 100


def shown(comparison: Comparison, form: str) -> str:
    """A comparison as text, JSON or Markdown (``form`` is the value of --format)."""
    if form == "json":
        return json.dumps(comparison, indent=2, ensure_ascii=False) + "\n"
    if form == "markdown":
        return compared_markdown(comparison)
    return compared_text(comparison, terminal_columns(80, 140))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two reports and print the comparison; return the exit status."""
    args = options().parse_args(argv)
    report_a = read_kept(find(args.reports, args.a, "A"))
    report_b = read_kept(find(args.reports, args.b, "B"))
    comparison = compare(report_a, report_b, args.regression)
    if comparison["against"] and not args.anyway:
        needed = "the same prompts, asked in the same way, in two valid reports"
        do = "measure again under the same conditions, or compare with --anyway, which marks what differs"
        print(
            describe([Problem("not-comparable", reason, needed, do, "A, B") for reason in comparison["against"]]),
            file=sys.stderr,
        )
        return NOT_HERE
    print(shown(comparison, args.format), end="")
    if comparison["regressions"]:
        return FAILED
    unjudged = comparison["unjudged"]
    # A regression was asked for, and nothing was compared: that is not the same as no regression.
    if args.regression is not None and not comparison["judged"]:
        unjudged = unjudged or ["no kind of the verdict with enough prompts in both reports"]
    if unjudged:
        needed = "in B all that A shows, with 6 or more prompts per kind"
        do = "measure B with what is missing (more prompts per kind, the gate's suite, the ladder), or choose another A"
        print(
            describe([Problem("regression-not-judged", reason, needed, do, "--regression") for reason in unjudged]),
            file=sys.stderr,
        )
        return CANNOT_SAY
    return DONE
