"""Rows that other people measured: the form for which they are read, what is refused, and the page's cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.format import NOTHING
from drafthouse.core.places import ROOT
from drafthouse.report.archive import read_kept
from drafthouse.report.community import FOLDER, HEADINGS, SCHEMA, cells, rows
from drafthouse.report.row import row_of
from tests.support.refusals import refuses
from tests.support.report_builders import keep

NAME = "2026-11-21-my-card.json"


def written(tmp_path: Path, name: str = NAME, **changes: Any) -> Path:
    """A folder with the row of a kept report, and what ``changes`` says of it."""
    row = row_of(read_kept(keep(tmp_path / "reports", "20261121-111742")), "1.0")
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / name).write_text(json.dumps({"schema": SCHEMA, **row, **changes}), "utf-8")
    return folder


def test_a_printed_row_is_read_and_shown(tmp_path: Path) -> None:
    found = rows(written(tmp_path, speedup=[1.94, 1.8, 2.1], gpus=["NVIDIA H100 80GB HBM3"]))
    shown = dict(zip(HEADINGS, cells(found[NAME]), strict=True))
    assert shown["measured"] == "2026-11-21"
    assert shown["hardware"] == "NVIDIA H100 80GB HBM3"
    assert shown["speed-up"].startswith("1.94")


def test_what_is_not_known_is_a_dash(tmp_path: Path) -> None:
    folder = written(tmp_path, speedup=[], acceptance_rate=None, concurrency=None, draft_tokens=None)
    shown = dict(zip(HEADINGS, cells(rows(folder)[NAME]), strict=True))
    assert shown["speed-up"] == shown["acceptance"] == NOTHING


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"schema": "drafthouse.row/2"}, "unknown-value"),
        ({"host": "box.example"}, "unknown-key"),
        ({"speedup": [1.9, 2.0, 2.1]}, "wrong-format"),
        ({"speedup": [1.9]}, "wrong-format"),
        ({"speedup": [1.9, 1.8, 400.0]}, "out-of-range"),
        ({"acceptance_rate": 20.01}, "out-of-range"),
        ({"kinds": ["<img src=x onerror=alert(1)>"]}, "wrong-format"),
        ({"target": "a | b"}, "wrong-format"),
        ({"target": "[here](https://example.com)"}, "wrong-format"),
        ({"target": "two\nlines"}, "wrong-format"),
        ({"verdict": None}, "wrong-type"),
        ({"measured": "2026-11-22"}, "wrong-format"),
        ({"measured": ""}, "wrong-format"),
    ],
)
def test_a_row_of_another_form_is_refused(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    with refuses(code):
        rows(written(tmp_path, **changes))


def test_a_file_of_another_name_and_broken_json_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, name="my-card.json")
    with refuses("wrong-format"):
        rows(folder)
    (folder / "my-card.json").write_text("{", "utf-8")
    with refuses("file-malformed"):
        rows(folder)


def test_every_refused_file_is_named_at_once(tmp_path: Path) -> None:
    folder = written(tmp_path, target="<b>")
    text = (folder / NAME).read_text("utf-8")
    (folder / "2026-11-21-another.json").write_text(text, "utf-8")
    with pytest.raises(DrafthouseError) as refused:
        rows(folder)
    assert len(refused.value.problems) == 2


def test_the_rows_of_this_clone_are_right() -> None:
    rows(ROOT / FOLDER)
