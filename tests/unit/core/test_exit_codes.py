"""How programs end: one table, in one module, in the docs, and in what the programs do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core import exit_codes
from drafthouse.core.errors import DrafthouseError, NotHere, Problem
from drafthouse.core.exit_codes import CANNOT_SAY, DONE, FAILED, MEANINGS, NOT_HERE, WARNED, of_error, worst
from drafthouse.profiles.workspace import ROOT
from drafthouse.report.data.build import exit_code_of

PROBLEM = Problem("unknown-value", "this", "that", "mend it")
SCRIPTS = sorted(
    path for folder in ("scripts", "src/drafthouse/cli") for path in (ROOT / folder).glob("*.py") if path.stem[0] != "_"
)


def test_the_numbers() -> None:
    assert (DONE, WARNED, FAILED, NOT_HERE, CANNOT_SAY, exit_codes.INTERRUPTED) == (0, 1, 2, 3, 4, 130)


def test_the_docs_have_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+?) \|", (ROOT / "docs" / "exit-codes.md").read_text("utf-8"), re.MULTILINE)
    assert {int(code): words for code, words in rows} == MEANINGS
    assert "docs/exit-codes.md" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_no_script_has_codes_of_its_own(script: Path) -> None:
    text = script.read_text("utf-8")
    found = re.findall(r"^\s*(?:return|sys\.exit\()\s*(?:1|2|3|4|130)\)?(?: if .*)?$", text, re.MULTILINE)
    assert found == []


@pytest.mark.parametrize(
    ("word", "warnings", "code"),
    [
        ("pays", [], DONE), ("does not pay", [], DONE), ("pays", ["the box was not steady"], WARNED),
        ("invalid", [], FAILED), ("invalid", ["and more"], FAILED), ("cannot say", ["busy"], CANNOT_SAY),
    ],
)  # fmt: skip
def test_a_verdicts_code(word: str, warnings: list[str], code: int) -> None:
    report: Any = {"verdict": {"word": word}, "warnings": warnings}
    assert exit_code_of(report) == code


def test_what_cannot_be_done_here_is_told_from_what_is_wrong() -> None:
    assert of_error(DrafthouseError(PROBLEM)) == FAILED
    assert of_error(NotHere(PROBLEM)) == NOT_HERE


def test_of_several_the_worst() -> None:
    assert worst([]) == DONE
    assert worst([DONE, CANNOT_SAY, WARNED]) == CANNOT_SAY
    assert worst([CANNOT_SAY, FAILED, DONE]) == FAILED
