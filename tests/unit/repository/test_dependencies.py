"""`make lint` holds requirements and imports together: it finds a line that is missing, and one that nothing needs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes


def deptry(*more: str) -> subprocess.CompletedProcess[str]:
    """Run it as the Makefile does, and with ``more``."""
    (line,) = re.findall(r"&& (deptry .*?) &&", (ROOT / "Makefile").read_text("utf-8"))
    program, *words = shlex.split(line)
    argv = [str(Path(sys.executable).with_name(program)), "--no-ansi", *words, *more]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def broken(tmp_path: Path) -> list[str]:
    """Our requirements without one that is imported, and with one that is not."""
    files = tomllib.loads((ROOT / ".deptry.toml").read_text("utf-8"))["tool"]["deptry"]["requirements_files"]
    changed = tmp_path / "requirements.in"
    text = (ROOT / files[0]).read_text("utf-8")
    assert "\nmarkupsafe==" in text
    changed.write_text(re.sub(r"\nmarkupsafe==.*", "\npluggy==1.6.0", text), "utf-8")
    return ["--requirements-files", ",".join([str(changed), *files[1:]])]


def test_what_is_imported_is_named_and_what_is_named_is_imported() -> None:
    done = deptry()
    assert done.returncode == 0, done.stderr


def test_a_missing_line_and_one_too_many_are_found(broken: list[str]) -> None:
    done = deptry(*broken)
    assert done.returncode == 1
    # Named for the tests alone: requirements-dev.in still reads the whole requirements.in.
    assert "DEP004 'markupsafe'" in done.stderr
    assert "DEP002 'pluggy'" in done.stderr
