"""The last lines of a run: one command, and a link that a terminal opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.report.closing import closing_lines


def lines(word: str = "pays", page: Path | None = None, *, destroyed: bool = False, **resolved: Any) -> list[str]:
    report: Any = {"verdict": {"word": word, "sentence": f"speculation: {word}\x1b[2J"}}
    run: Any = {
        "profile": "p",
        "overrides": {},
        "rented": None,
        "deadline": None,
        "hardware": {"kind": "gpu"},
        **resolved,
    }
    return closing_lines(report, run, "my box", page, destroyed=destroyed).splitlines()


def test_verdict_next_command_and_link_in_a_line_each(tmp_path: Path) -> None:
    said = lines(page=tmp_path / "Größe 1" / "report.html")
    assert said[0] == "verdict: speculation: pays?[2J"
    assert said[-1] == f"report: file://{tmp_path}/Gr%C3%B6%C3%9Fe%201/report.html"
    assert len(said) == 3
    assert len(lines()) == 2  # nothing was written in check mode


@pytest.mark.parametrize(
    ("word", "resolved", "command"),
    [
        ("pays", {}, "make tune PROFILE=p INVENTORY='my box'"),
        ("does not pay", {}, "make tune PROFILE=p INVENTORY='my box'"),
        ("does not pay", {"hardware": {"kind": "cpu"}}, "make profiles"),
        ("cannot say", {}, "make p INVENTORY='my box' ARGS='-e remeasure=true'"),
        ("invalid", {"hardware": {"kind": "cpu"}}, "make p INVENTORY='my box' ARGS='-e remeasure=true'"),
        ("pays", {"rented": {"deadline": None}}, "make tune PROFILE=p INVENTORY='my box'"),
        ("pays", {"deadline": 1}, "make destroy"),
        ("pays", {"deadline": 1, "destroyed": True}, "make reports PROFILE=p"),
    ],
)
def test_the_next_command(word: str, resolved: dict[str, Any], command: str) -> None:
    assert lines(word, **resolved)[1].partition("   (")[0] == f"next: {command}"


def test_what_was_set_is_to_be_set_again() -> None:
    assert lines("cannot say", overrides={"serve": {"parallel": 2}})[1].endswith(", with the same SET)")
