"""Open a report, show it as a row, or make it again and print its verdict.

Examples:
  drafthouse report --again cpu-smollm2-ngram          (the newest of this profile; a folder of reports/ works too)
  drafthouse report --open                             (the newest of all, in the browser; --open NAME another one)
  drafthouse report --row                              (the newest of all, to paste into an issue; --row NAME another)

Two result files of any client, Drafthouse's own too, are judged by drafthouse judge.

--row prints numbers, words of the shipped catalogue, versions and names of cards. Of hosts, users, paths, profiles,
keys, commands, prompts and answers it holds nothing. Models that you added are "not in the catalogue".

Exit status: 0 pays or does not pay; 1 the same with warnings; 2 invalid, or the report could not be made; 4 cannot say
(docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..bench.kept_shapes import RESOLVED, checked, checked_ladder, checked_result
from ..bench.result_types import ArmResult
from ..bench.results import SCHEMA
from ..core.documents import read_json
from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.places import ROOT
from ..core.schema import Map
from ..core.shell import shell_words
from ..core.table import terminal_columns
from ..report.archive import find, newest_of_all, read_kept
from ..report.data.build import build_report, exit_code_of, lasting
from ..report.plots.by_category import can_draw
from ..report.report_types import KeptProfile
from ..report.row import markdown, row_of
from ..report.terminal import NARROWEST, WIDEST, verdict_table
from ..report.writer import Written, write_files
from .browser import show
from .main import version
from .parser import Parser, coloured, parser_of, print_json, reports_option


def options() -> Parser:
    """The argument parser of `drafthouse report`."""
    parser = parser_of(__doc__, "report")
    parser.add_argument(
        "--again", metavar="REPORT", help="make this report again, in place: a folder, or a name as for compare"
    )
    reports_option(parser)
    parser.add_argument(
        "--templates", type=Path, default=ROOT / "templates", metavar="DIR", help="folder of the page's templates"
    )
    parser.add_argument(
        "--colour", choices=("auto", "always", "never"), default="auto", help="use colours in the terminal"
    )
    parser.add_argument(
        "--open",
        nargs="?",
        const="",
        metavar="REPORT",
        help="open the page in the browser: of the report that is made again, or of a kept one (default: the newest); "
        "without a screen, and over SSH, print its address",
    )
    parser.add_argument(
        "--row",
        nargs="?",
        const="",
        metavar="REPORT",
        help="print a small row of a kept report for an issue, without anything personal (default: the newest)",
    )
    parser.add_argument("--json", action="store_true", help="print the report, or with --row the row, as JSON")
    return parser


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The parsed arguments. Options that exclude each other end the program with an error."""
    parser = options()
    args = parser.parse_args(argv)
    if args.row is not None and (args.again or args.open is not None):
        parser.error("--row only shows a kept report: leave out the other options")
    if args.open and args.again:
        parser.error("--open REPORT only shows a kept report: leave out its name, or --again")
    if not args.again and args.open is None and args.row is None:
        parser.error("give --again, --open or --row")
    return args


def _mapping(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a kept report. Raises DrafthouseError for any other content."""
    needed = "a mapping in JSON, as a run keeps it"
    do = "measure again"
    data = read_json(path, needed, do)
    if not isinstance(data, dict):
        raise one_problem("file-malformed", f"a {type(data).__name__}", needed, do, str(path))
    return data


def result(path: Path) -> ArmResult:
    """The result of an arm, from a file of a kept report. Raises DrafthouseError for a file of another kind."""
    data = checked_result(_mapping(path), str(path))
    if data.get("schema") != SCHEMA:
        do = "give what drafthouse bench --result wrote, or a run's results/"
        raise one_problem("unknown-schema", f"the schema {data.get('schema')!r}", SCHEMA, do, str(path))
    return data


def make_again(args: argparse.Namespace) -> Written:
    """Build the report of --again from the results in its folder, and write it there."""
    folder = Path(args.again)
    if not folder.is_dir():
        folder = find(args.reports, args.again, "--again")
    file = folder / "report.json"
    old_report = _mapping(file)
    if not isinstance(old_report.get("resolved"), dict):
        raise one_problem(
            "missing-key",
            "no resolved profile",
            "the resolved profile that a report keeps",
            "judge its results by themselves: drafthouse judge baseline.json speculative.json",
            f"{file}: resolved",
        )
    data = checked(old_report, Map({"resolved": RESOLVED}, others=True), str(file))["resolved"]
    inputs = result(folder / "baseline.json"), result(folder / "speculative.json"), lasting(cast("KeptProfile", data))
    # Only some runs have these two: the arm with the engine's default settings, and a load sweep.
    stock_file = folder / "stock.json"
    ladder_file = folder / "ladder.json"
    stock = result(stock_file) if stock_file.is_file() else None
    ladder = checked_ladder(_mapping(ladder_file), str(ladder_file)) if ladder_file.is_file() else None
    report = build_report(*inputs, str(old_report.get("host") or ""), stock, ladder)
    return write_files(folder, report, *inputs, args.templates, stock, ladder)


def print_row(reports: Path, name: str, *, as_json: bool) -> None:
    """Print the row of the report ``name``; an empty name is the newest report. Raises DrafthouseError."""
    row = row_of(read_kept(_named_or_newest(reports, name, "--row")), version())
    if as_json:
        print_json("row", row)
    else:
        print(markdown(row), end="")


def _named_or_newest(reports: Path, name: str, option: str) -> Path:
    """The folder of the report ``name``; an empty name is the newest report. ``option`` is named in an error."""
    if name:
        return find(reports, name, option)
    return newest_of_all(reports)


def page_of(reports: Path, name: str) -> Path:
    """The HTML page of the report ``name``; an empty name is the newest report. Raises DrafthouseError."""
    folder = _named_or_newest(reports, name, "--open")
    page = folder / "report.html"
    if not page.is_file():
        do = f"make it again: drafthouse report --again {shell_words([str(folder)])}"
        raise one_problem("no-such-report", "no report.html in it", "the report's HTML page", do, str(folder))
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row, open a page, or make a report again and print its verdict; return the exit status."""
    args = arguments(argv)
    if args.row is not None:
        print_row(args.reports, args.row, as_json=args.json)
        return DONE
    if args.open is not None and not args.again:
        show(page_of(args.reports, args.open))
        return DONE
    try:
        written = make_again(args)
    except OSError as error:
        needed = "a writable folder, and the templates"
        do = "choose --reports or --templates"
        raise one_problem("file-unwritable", error.strerror or str(error), needed, do) from error
    if args.json:
        print(json.dumps(written.report, indent=1, ensure_ascii=False))
        return exit_code_of(written.report)
    colour = args.colour == "always" or (args.colour == "auto" and coloured(sys.stdout))
    width = terminal_columns(NARROWEST, WIDEST)
    print(verdict_table(written.report, width=width, colour=colour), end="")
    if not can_draw():
        print("no plots: matplotlib is not installed", file=sys.stderr)
    page = written.path / "report.html"
    print(f"report: {page} ({'written' if written.changed else 'unchanged'})")
    if args.open is not None:
        show(page)
    return exit_code_of(written.report)
