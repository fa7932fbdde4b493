"""Answers of nvidia-smi through our reader: of real drivers (evidence/), and some made by hand beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.places import ROOT
from drafthouse.host.nvidia_smi import read_smi, rows

MADE = sorted(Path(__file__).with_name("fixtures").glob("*.json"))
RECORDED = sorted((ROOT / "evidence").glob("*/fixtures/smi-[bd]*.json"))


def answer(path: Path) -> Any:
    return json.loads(path.read_text())


def test_each_says_where_it_is_from() -> None:
    assert MADE
    assert {answer(path)["kind"] for path in MADE} == {"made"}
    assert {answer(path)["kind"] for path in RECORDED} <= {"recorded"}


@pytest.mark.parametrize("path", [*MADE, *RECORDED], ids=lambda path: path.stem)
def test_every_answer_is_read(path: Path) -> None:
    found = answer(path)
    given: Any = {key: found[key] for key in ("status", "output", "error")}
    read, listed = read_smi(given), rows(given, *found["fields"])
    if found["status"]:
        assert listed == []
        assert read.mismatch
        assert not read.works
        return
    assert len(listed) == len(found["output"].splitlines())
    assert all(list(row) == found["fields"] for row in listed)
    # Asked for with the version last, as the driver's role does it.
    last: Any = {**given, "output": "".join(f"{row['name']}, {row['driver_version']}\n" for row in listed)}
    assert read_smi(last).works
