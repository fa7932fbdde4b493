"""Show what a load sweep through a fleet's front says: the crossover of the fleet, and a column per replica.

Example:
  drafthouse fleet-report fleet.json --markdown fleet.md

The file is the --result of `drafthouse bench` or `drafthouse fleet-measure`, with the sweeps of both arms in it. One
arm alone gives the replicas without a crossover.

Exit status: 0, 2 if the file cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..analysis.fleet import FleetArm, FleetReport, fleet_report
from ..bench.sweep.store import read_ladder
from ..core.exit_codes import DONE
from ..core.format import count
from ..core.kept_file import write_whole
from ..core.plain_text import printable
from ..core.table import aligned
from .parser import Parser, parser_of, positive

_NOTHING = "-"
_ROWS = ("requests", "tokens/s", "accepted", "failed")


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "fleet-report")
    parser.add_argument("ladder", type=Path, help="the sweep's file")
    parser.add_argument("--boxes", type=positive, help="number of boxes (default: the replicas that were counted)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report to this file as Markdown")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Show the report; return the exit code."""
    given = options().parse_args(argv)
    report = fleet_report(read_ladder(given.ladder), given.boxes)
    if given.markdown:
        write_whole(given.markdown, "\n".join(markdown_lines(report)) + "\n")
    print(json.dumps(report, indent=1) if given.json else "\n".join(report_lines(report)))
    return DONE


def report_lines(report: FleetReport) -> list[str]:
    """Return the report for a terminal."""
    lines = _sentences(report)
    for arm in report["arms"]:
        lines += ["", _heading(arm), *aligned(_cells(arm), [0])]
    return [*lines, *([""] if report["notes"] else []), *(f"Note: {printable(note)}" for note in report["notes"])]


def markdown_lines(report: FleetReport) -> list[str]:
    """Return the report as a Markdown page."""
    lines = [f"# Fleet of {report['boxes']}", ""]
    lines += [f"- {line}" for line in _sentences(report)]
    for arm in report["arms"]:
        head, *rows = _cells(arm)
        lines += ["", f"## {_heading(arm)}", "", _row(head), _row(["---", *["---:"] * (len(head) - 1)])]
        lines += [_row(row) for row in rows]
    notes = [f"- {printable(note)}" for note in report["notes"]]
    return [*lines, *(["", "## Notes", "", *notes] if notes else [])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _sentences(report: FleetReport) -> list[str]:
    lines = []
    for kind, sentence in report["sentences"].items():
        lines.append(f"{printable(kind)}: {sentence}")
        lines.append(f"{printable(kind)}, in full: {report['details'][kind]}")
    return lines


def _heading(arm: FleetArm) -> str:
    return (
        f"{arm['arm']}: {count(arm['completed'], 'request')} in {count(arm['steps'], 'good step')}, "
        f"{arm['failed']} failed at the client"
    )


def _cells(arm: FleetArm) -> list[list[str]]:
    """Return the table of an arm: a column per replica."""
    columns = [["", *_ROWS]]
    for one in arm["replicas"]:
        rate, speed = one["acceptance_rate"], one["output_throughput"]
        columns.append(
            [
                printable(one["name"]),
                _NOTHING if one["requests"] is None else f"{one['requests']:,}",
                _NOTHING if speed is None else f"{speed:,.1f}",
                _NOTHING if rate is None else f"{rate:.1f} %",
                _NOTHING if one["failed"] is None else f"{one['failed']:,}",
            ]
        )
    return [list(row) for row in zip(*columns, strict=True)]
