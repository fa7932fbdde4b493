"""Rows that other people measured: ``community/DAY-NAME.json``, each what `drafthouse report --row --json` printed.

A row is a claim, not evidence: nobody can check it again. It is read only where it has the form of a row, and holds
nothing but numbers, names and versions, because a page of the documentation shows it.
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
_NAME = re.compile(r"20\d\d-\d\d-\d\d-[a-z0-9-]{1,60}\.json")
_FILE = Map({"schema": Value(required=True, choices=(SCHEMA,)), **ROW_SHAPE.fields})
_DO = "copy what drafthouse report --row --json prints, unchanged"
HEADINGS = ("measured", "hardware", "engine", "target", "method", "load", "acceptance", "speed-up", "verdict")


def rows(folder: Path) -> dict[str, Row]:
    """The rows in ``folder`` by the names of their files, the newest first. DrafthouseError names all refused files."""
    found: dict[str, Row] = {}
    problems = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        data = read_json(path, f"a row, {SCHEMA}", _DO)
        findings = Findings(str(path))
        if check(data, _FILE, findings):
            row = cast("Row", data)
            _check_row(findings, path.name, row)
            found[path.name] = row
        problems += findings.problems
    if problems:
        raise DrafthouseError(problems)
    return found


def _check_row(findings: Findings, name: str, row: Row) -> None:
    """Check that the file is named after the day of its row, and that an interval is a mean between two ends."""
    if not _NAME.fullmatch(name) or not row["measured"] or not name.startswith(f"{row['measured']}-"):
        needed = f"{row['measured'] or 'YYYY-MM-DD'}-NAME.json, NAME in lowercase letters, digits and hyphens"
        findings.add("wrong-format", "", f"the file name {name}", needed, "rename the file")
    for key in ("speedup", "control"):
        ends = cast("Sequence[float]", row[key])
        if len(ends) not in (0, 3) or (ends and not ends[1] <= ends[0] <= ends[2]):
            findings.add("wrong-format", key, f"{list(ends)}", "nothing, or the mean between low and high", _DO)


def cells(row: Row) -> list[str]:
    """The cells of a row in a table under `HEADINGS`; a dash where something is not known."""
    ends = cast("Sequence[float]", row["speedup"])
    speedup = dict(zip(("gain", "low", "high"), ends, strict=True)) if ends else None
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
