r"""Make a report from the results of two arms, or make an existing one again, and print its verdict.

Examples:
  drafthouse report --baseline baseline.json --speculative speculative.json \
      --resolved build/cpu-smollm2-ngram/resolved.json
  drafthouse report --again cpu-smollm2-ngram          (the newest of this profile; a folder of reports/ works too)
  drafthouse report --open                             (the newest of all, in the browser; --open NAME another one)

Exit status: 0 pays or does not pay; 1 the same with warnings; 2 invalid, or the report could not be made; 4 cannot say
(docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import shutil
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
from ..core.yaml_documents import read_yaml
from ..report.archive import find, newest_of_all
from ..report.data.build import build_report, exit_code_of, lasting
from ..report.plots.by_category import can_draw
from ..report.report_types import KeptProfile
from ..report.terminal import verdict_table
from ..report.writer import Written, write_files, write_report
from .browser import show
from .parser import Parser, coloured, parser_of, reports_option


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "report")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="result of the baseline arm")
    parser.add_argument("--speculative", type=Path, metavar="FILE", help="result of the speculative arm")
    parser.add_argument(
        "--resolved",
        type=Path,
        metavar="FILE",
        help="resolved profile, JSON or YAML, with the rendered files",
    )
    parser.add_argument("--ladder", type=Path, metavar="FILE", help="result of the load sweep (ladder.json), if any")
    parser.add_argument(
        "--again", metavar="REPORT", help="make this report again, in place: a folder, or a name as for compare"
    )
    reports_option(parser)
    parser.add_argument("--host", default="", help="box name in the folder's name (default: from the results)")
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
        help="open the page in the browser: of the report that is made, or of a kept one (default: the newest); "
        "without a screen, and over SSH, print its address",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON instead of the verdict")
    return parser


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = options()
    args = parser.parse_args(argv)
    given = [args.baseline, args.speculative, args.resolved]
    if args.open is not None and not any([args.again, args.ladder, *given]):
        return args
    if args.open:
        parser.error("--open REPORT only shows a kept report: leave out its name, or the other options")
    if bool(args.again) == any(given) or (any(given) and not all(given)) or (args.again and args.ladder):
        parser.error("give --baseline, --speculative and --resolved, or --again alone")
    return args


def read(path: Path) -> dict[str, Any]:
    """Return a JSON or YAML file's mapping. DrafthouseError names the file and what is wrong with it."""
    needed = "a result or a resolved profile: a mapping in JSON or YAML"
    do = "give the path of one, or measure the arm again"
    data = read_yaml(path, needed, do) if path.suffix in (".yml", ".yaml") else read_json(path, needed, do)
    if not isinstance(data, dict):
        raise one_problem("file-malformed", f"a {type(data).__name__}", needed, "give the path of one", str(path))
    return data


def result(path: Path) -> ArmResult:
    """Return the result of an arm. Raises DrafthouseError as `read` does, and for a file that is no result."""
    data = checked_result(read(path), str(path))
    if data.get("schema") != SCHEMA:
        do = "give what drafthouse bench --result wrote, or a run's results/"
        raise one_problem("unknown-schema", f"the schema {data.get('schema')!r}", SCHEMA, do, str(path))
    return data


def make(args: argparse.Namespace) -> Written:
    """Make the report that the command line asks for."""
    if not args.again:
        data = checked(read(args.resolved), RESOLVED, str(args.resolved))
        resolved = lasting(cast("KeptProfile", data))
        results = result(args.baseline), result(args.speculative), resolved
        ladder = checked_ladder(read(args.ladder), str(args.ladder)) if args.ladder else None
        return write_report(args.reports, *results, args.templates, args.host, ladder=ladder, replace=False)
    place = Path(args.again) if Path(args.again).is_dir() else find(args.reports, args.again, "--again")
    where = place / "report.json"
    kept = read(where)
    if not isinstance(kept.get("resolved"), dict):
        raise one_problem(
            "missing-key",
            "no resolved profile",
            "the resolved profile that a report keeps",
            "make the report with --baseline, --speculative and --resolved",
            f"{where}: resolved",
        )
    data = checked(kept, Map({"resolved": RESOLVED}, others=True), str(where))["resolved"]
    results = result(place / "baseline.json"), result(place / "speculative.json"), lasting(cast("KeptProfile", data))
    stock, loads = place / "stock.json", place / "ladder.json"
    stock_result = result(stock) if stock.is_file() else None
    ladder = checked_ladder(read(loads), str(loads)) if loads.is_file() else None
    report = build_report(*results, args.host or str(kept.get("host") or ""), stock_result, ladder)
    return write_files(place, report, *results, args.templates, stock_result, ladder)


def page_of(reports: Path, name: str) -> Path:
    """Return the page of a kept report, of the newest of all for an empty name. Raises DrafthouseError."""
    kept = find(reports, name, "--open") if name else newest_of_all(reports)
    page = kept / "report.html"
    if not page.is_file():
        do = f"make it again: drafthouse report --again {shell_words([str(kept)])}"
        raise one_problem("no-such-report", "no report.html in it", "the report's HTML page", do, str(kept))
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Make the report, print the verdict and the paths; return the exit status."""
    args = arguments(argv)
    if args.open is not None and not args.again and not args.baseline:
        show(page_of(args.reports, args.open))
        return DONE
    try:
        written = make(args)
    except OSError as error:
        needed, do = "a writable folder, and the templates", "choose --reports or --templates"
        raise one_problem("file-unwritable", error.strerror or str(error), needed, do) from error
    if args.json:
        print(json.dumps(written.report, indent=1, ensure_ascii=False))
        return exit_code_of(written.report)
    colour = args.colour == "always" or (args.colour == "auto" and coloured(sys.stdout))
    width = min(max(shutil.get_terminal_size((80, 24)).columns, 80), 100)
    print(verdict_table(written.report, width=width, colour=colour), end="")
    if not can_draw():
        print("no plots: matplotlib is not installed", file=sys.stderr)
    page = written.path / "report.html"
    print(f"report: {page} ({'written' if written.changed else 'unchanged'})")
    if args.open is not None:
        show(page)
    return exit_code_of(written.report)
