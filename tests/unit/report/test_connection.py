"""The end of a run: lines to copy, which reach the server from a shell, with no key in a command line; the verdict."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.gateway import key_command
from drafthouse.report.closing import closing_lines
from drafthouse.report.connection import Connection, connection_lines
from tests.support.canaries import canary

URL = "http://127.0.0.1:8100/v1"
MODEL = 'my "quoted" model\'s $HOME'
# Says what it was called with, what it has in its environment, and what it can read of a header's file.
FAKE = """#!/bin/bash
for word in "$@"; do printf 'word %s\\n' "$word"; done
for word in "$@"; do [[ $word == @* ]] && printf 'header %s\\n' "$(cat "${word#@}")"; done
printf 'key %s\\nurl %s\\n' "$OPENAI_API_KEY" "$OPENAI_BASE_URL"
"""


def closing(connection: Connection | None) -> str:
    report: Any = {"verdict": {"word": "pays", "sentence": "pays"}}
    run: Any = {"profile": "p", "overrides": {}, "rented": None, "deadline": None, "hardware": {"kind": "gpu"}}
    return closing_lines(report, run, "lab", Path("/r/report.html"), connection=connection)


@pytest.mark.processes
def test_pasted_into_bash_they_reach_the_server_and_no_command_line_has_the_key(tmp_path: Path) -> None:
    secret = canary("sk-")
    folder = tmp_path / "a folder's"
    folder.mkdir()
    (folder / "api_key").write_text(f"{secret}\n", "utf-8")
    for name in ("curl", "python3", "docker"):
        (folder / name).write_text(FAKE, "utf-8")
        (folder / name).chmod(0o755)
    lines = connection_lines(Connection(URL, MODEL, key_command(str(folder / "api_key"))))
    assert secret not in "\n".join(lines)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-eu"], input="\n".join(lines), capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    said = done.stdout.splitlines()
    assert said.count(f"key {secret}") == said.count(f"url {URL}") == 3
    assert f"header Authorization: Bearer {secret}" in said
    assert not [line for line in said if line.startswith("word ") and secret in line]
    (code,) = [line for line in said if line.startswith("word from openai")]
    assert f"model={json.dumps(MODEL)}" in code
    compile(code.removeprefix("word "), "line", "exec")
    assert f"word OPENAI_API_BASE_URL={URL}" in said


def test_a_server_without_keys_and_one_behind_a_tunnel() -> None:
    plain = connection_lines(Connection(URL, "m", ""))
    assert f"export OPENAI_BASE_URL={URL} OPENAI_API_KEY=none" in plain
    far = connection_lines(Connection(URL, "m", "ssh box 'cat /k'", "make tunnel INVENTORY=lab HOST=box"))
    assert far[1] == "# first, in another terminal: make tunnel INVENTORY=lab HOST=box"
    assert f"export OPENAI_BASE_URL={URL} OPENAI_API_KEY=\"$(ssh box 'cat /k')\"" in far


def test_the_verdict_the_next_command_and_the_report_stay_last() -> None:
    lines = closing(Connection(URL, "m\x1b[2J", "cat /k")).splitlines()
    assert lines[0] == "# connect (bash)"
    assert "\x1b" not in "\n".join(lines)
    assert [line.partition(":")[0] for line in lines[-3:]] == ["verdict", "next", "report"]
    assert closing(None).splitlines() == lines[-3:]


# --- the last lines of a run --------------------------------------------------------------------------


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


def test_a_run_that_measured_nothing_says_of_when_its_verdict_is() -> None:
    report: Any = {"verdict": {"word": "pays", "sentence": "pays: x"}, "date": "2026-11-20T14:37:05+00:00"}
    run: Any = {"profile": "p", "overrides": {}, "deadline": None, "hardware": {"kind": "gpu"}}
    (verdict, *_) = closing_lines(report, run, "box", None, kept=True).splitlines()
    assert verdict.endswith("   (measured 2026-11-20 14:37; ARGS='-e remeasure=true' measures again)")
    (kept, *_) = closing_lines(report, run, "box", None, kept=True, table_above=True).splitlines()
    assert kept == "kept: measured 2026-11-20 14:37; ARGS='-e remeasure=true' measures again"
    assert closing_lines(report, run, "box", None, table_above=True).startswith("next: ")


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
