"""List the reports, one line each, newest first.

Examples:
  drafthouse reports
  drafthouse reports cpu-smollm2-ngram --json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.errors import DrafthouseError, Problem, did_you_mean
from ..core.exit_codes import DONE
from ..core.places import WORK
from ..core.plain_text import printable
from ..core.table import table
from ..report.archive import folders, history_rows
from .parser import Parser, parser_of, print_json

_COLUMNS = ("measured", "profile", "host", "verdict", "speed-up", "name it as")


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "reports")
    parser.add_argument("profile", nargs="?", help="only this profile")
    parser.add_argument("--reports", type=Path, default=WORK / "reports", metavar="DIR", help="folder of the reports")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the list."""
    given = options().parse_args(argv)
    rows = history_rows(given.reports, given.profile)
    if given.json:
        names = [column.replace(" ", "_").replace("-", "") for column in _COLUMNS]
        print_json("reports", {"reports": [dict(zip(names, row, strict=True)) for row in rows]})
    elif not rows and given.profile and (known := sorted({folder.parent.name for folder in folders(given.reports)})):
        found, needed = f"no report of '{given.profile}'", "a profile that was measured"
        raise DrafthouseError(
            Problem("no-such-report", found, needed, did_you_mean(given.profile, known), str(given.reports))
        )
    elif not rows:
        print(f"no report in {given.reports}" + (f" of {given.profile}" if given.profile else ""))
    else:
        print(table(list(_COLUMNS), [[printable(cell) for cell in row] for row in rows], width=60))
    return DONE
