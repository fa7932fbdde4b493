"""Read the results of other users: ``community/DAY-NAME.json``, each the output of `drafthouse report --row --json`.

Such a row is a claim, not evidence, since nobody can check it. A file must have exactly the fields of a row, with
numbers, names and versions only, because a page of the documentation shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from ..core.documents import read_json
from ..core.errors import DrafthouseError
from ..core.format import percent, times_span, whole
from ..core.schema import Findings, Map, Value, check
from .row import ROW_SHAPE, Row

FOLDER: Final = "community"
SCHEMA: Final = "drafthouse.row/1"
#: The name of a file: the day of its measurement, and a name that its author chose.
_NAME = re.compile(r"20\d\d-\d\d-\d\d-[a-z0-9-]{1,60}\.json")
#: The shape of a file.
_FILE = Map({"schema": Value(required=True, choices=(SCHEMA,)), **ROW_SHAPE.fields})
#: How to mend a refused file.
_DO = "copy what drafthouse report --row --json prints, unchanged"
#: The headings of the documentation's table, see `cells`.
HEADINGS = ("measured", "hardware", "engine", "target", "method", "load", "acceptance", "speed-up", "verdict")


def rows(folder: Path) -> dict[str, Row]:
    """The rows in ``folder`` by file name, the newest first. Raises DrafthouseError with all refused files."""
    by_file_name: dict[str, Row] = {}
    problems = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        data = read_json(path, f"a row, {SCHEMA}", _DO)
        findings = Findings(str(path))
        if check(data, _FILE, findings):
            row = cast("Row", data)
            _check_row(findings, path.name, row)
            by_file_name[path.name] = row
        problems += findings.problems
    if problems:
        raise DrafthouseError(problems)
    return by_file_name


def _check_row(findings: Findings, name: str, row: Row) -> None:
    """Check that the file's name begins with its row's day, and that each mean lies between its low and high.

    Problems go to ``findings``. A gain is a list of mean, low and high, or empty if it is unknown.
    """
    if not _NAME.fullmatch(name) or not row["measured"] or not name.startswith(f"{row['measured']}-"):
        needed = f"{row['measured'] or 'YYYY-MM-DD'}-NAME.json, NAME in lowercase letters, digits and hyphens"
        findings.add("wrong-format", "", f"the file name {name}", needed, "rename the file")
    for key in ("speedup", "control"):
        interval = cast("Sequence[float]", row[key])
        if len(interval) not in (0, 3) or (interval and not interval[1] <= interval[0] <= interval[2]):
            findings.add("wrong-format", key, f"{list(interval)}", "nothing, or the mean between low and high", _DO)


def cells(row: Row) -> list[str]:
    """The cells of a row in a table with `HEADINGS`; a dash stands for an unknown value."""
    interval = cast("Sequence[float]", row["speedup"])
    speedup = dict(zip(("gain", "low", "high"), interval, strict=True)) if interval else None
    drafting = [str(row["method"]), str(row["draft"]), f"K={whole(cast('float | None', row['draft_tokens']))}"]
    return [
        str(row["measured"]),
        ", ".join(cast("Sequence[str]", row["gpus"])) or str(row["cpu"]),
        f"{row['engine']} {row['engine_version']}",
        str(row["target"]),
        ", ".join(filter(None, drafting)),
        f"{whole(cast('float | None', row['concurrency']))} at once",
        percent(cast("float | None", row["acceptance_rate"])),
        times_span(speedup),
        str(row["verdict"]),
    ]
