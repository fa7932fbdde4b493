"""What verbs print is no wider than the terminal, but for commands, which are copied."""

from __future__ import annotations

import os
import re

import pytest

from drafthouse.cli.main import main

#: Each prints a table or a text. Reports: test_history.py.
VERBS = (
    ("--help",), ("profiles",), ("plan", "rtx6000-qwen-eagle3"), ("plan", "a100x4-llama3-draft8b"),
    ("fits", "qwen3-8b"), ("drafts", "qwen3-32b"),
)  # fmt: skip


@pytest.mark.parametrize("columns", [60, 80, 120, None])
@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words[:2]))
def test_a_verb_fits_the_terminal(
    words: tuple[str, ...], columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Through a pipe nobody says how wide it is shown.
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    if columns:
        monkeypatch.setenv("COLUMNS", str(columns))
    assert main(list(words)) == 0
    # A command goes on to the end of the text.
    shown = re.split(r"^(?:baseline|speculative) arm$", capsys.readouterr().out, flags=re.MULTILINE)[0]
    lines = shown.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if len(line) > (columns or 100)] == []
