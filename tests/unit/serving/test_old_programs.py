"""Programs of earlier releases go when nothing names them any more, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.serving.old_programs import remove_old

NEW, OLD = "drafthouse-0123456789ab.pyz", "drafthouse-ba9876543210.pyz"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A box that another release set up, with this one's archive."""
    for file in (NEW, OLD, "served/program/start.py", "watchdog/program/package/run.py", "drafthouse-notes.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return tmp_path


def test_what_nothing_names_goes_and_the_second_time_nothing_does(home: Path) -> None:
    old = [str(home / name) for name in (OLD, "served/program", "watchdog/program")]
    assert remove_old(home, NEW, check=True) == old
    assert remove_old(home, NEW) == old
    assert remove_old(home, NEW) == []
    left = sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))
    assert left == [NEW, "drafthouse-notes.txt", "served", "watchdog"]
    assert remove_old(home / "none", NEW) == []


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("served/start.sh", OLD),
        ("watchdog/serve.sh", OLD),
        ("served/start.sh", "served/program/start.py"),
    ],
)
def test_what_a_script_starts_stays(home: Path, script: str, named: str) -> None:
    (home / script).write_text(f"#!/bin/sh\nexec python {home}/{named} restore {home}\n")
    removed = remove_old(home, NEW)
    assert (home / named).exists() and len(removed) == 2


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (OLD, ["{home}/drafthouse-ba9876543210.pyz", "watchdog", "{home}"]),
        ("served/program", ["{home}/served/program/start.py", "{home}", "--guard"]),
        ("watchdog/program", ["-m", "drafthouse_watchdog.addons.watchdog.run", "{home}"]),
    ],
)
def test_what_runs_stays_until_it_has_ended(home: Path, name: str, words: list[str]) -> None:
    kept = home / name
    started = [sys.executable, "-c", "print(flush=True); input()", *(word.format(home=home) for word in words)]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        # The kernel shows no words of one that is only being started.
        assert process.stdout and process.stdout.readline()
        assert len(remove_old(home, NEW)) == 2
        assert kept.exists()
        process.communicate(b"\n")
    assert remove_old(home, NEW) == [str(kept)]
