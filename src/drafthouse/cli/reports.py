"""List the reports, one line each, newest first, or write a page over them.

Examples:
  drafthouse reports
  drafthouse reports cpu-smollm2-ngram --json
  drafthouse reports --html
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import DrafthouseError, Problem, did_you_mean, one_problem
from ..core.exit_codes import DONE
from ..core.places import ROOT
from ..core.plain_text import printable
from ..core.table import table
from ..report.archive import folders, history_rows, kept_lines
from ..report.index import write_index
from .browser import show
from .parser import Parser, parser_of, print_json, records, reports_option

_COLUMNS = ("measured", "profile", "host", "verdict", "speed-up", "name it as")


def options() -> Parser:
    """The argument parser of `drafthouse reports`."""
    parser = parser_of(__doc__, "reports")
    parser.add_argument("profile", nargs="?", help="only this profile")
    reports_option(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print them as JSON")
    form.add_argument("--html", action="store_true", help="write index.html into the folder of the reports")
    parser.add_argument("--open", action="store_true", help="with --html: open the page in the browser")
    parser.add_argument(
        "--templates", type=Path, default=ROOT / "templates", metavar="DIR", help="folder of the page's templates"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the list of reports as a table or as JSON, or write it as a page."""
    parser = options()
    args = parser.parse_args(argv)
    if args.open and not args.html:
        parser.error("--open goes with --html; drafthouse report --open opens the newest report")
    rows = history_rows(args.reports, args.profile)
    if args.json:
        names = [column.replace(" ", "_").replace("-", "") for column in _COLUMNS]
        print_json("reports", {"reports": records(names, rows)})
    elif not rows and args.profile and (measured := sorted({folder.parent.name for folder in folders(args.reports)})):
        # There are reports, only not of this profile: the name is probably misspelt.
        found = f"no report of '{args.profile}'"
        do = did_you_mean(args.profile, measured)
        raise one_problem("no-such-report", found, "a profile that was measured", do, str(args.reports))
    elif args.html:
        _write_page(args)
    elif not rows:
        of_profile = f" of {args.profile}" if args.profile else ""
        print(f"no report in {args.reports}{of_profile}")
    else:
        # The last column, which users copy into a command, comes first: `table` never breaks its names.
        head, *lines = [list(map(printable, [row[-1], *row[:-1]])) for row in [_COLUMNS, *rows]]
        print(table(head, lines))
    return DONE


def _write_page(args: argparse.Namespace) -> None:
    """Write index.html over the reports; open it, or print its address."""
    page = args.reports / "index.html"
    try:
        write_index(page, kept_lines(args.reports, args.profile), args.templates)
    except OSError as error:
        found = error.strerror or str(error)
        needed = "a writable folder, and the templates"
        problem = Problem("file-unwritable", found, needed, "choose --reports or --templates", str(page))
        raise DrafthouseError(problem) from error
    if args.open:
        show(page, "reports")
    else:
        print(f"reports: {page.resolve().as_uri()}")
