"""The lane without processes refuses them. Its pytest runs in a process, so this is none of that lane."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import os, subprocess, sys

def test_swallowed():
    try:
        subprocess.run([sys.executable, "-c", ""])
    except Exception:
        pass

def test_forks():
    if os.fork() == 0:
        os._exit(0)

def test_none():
    pass
"""


def test_a_test_that_starts_a_process_fails_there_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_made.py").write_text(TESTS)
    words = ["-q", "-p", "tests.conftest", "-c", "/dev/null", str(tmp_path), "--no-processes"]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_swallowed starts a process: subprocess.Popen" in done.stdout
    assert "test_forks starts a process: os.fork" in done.stdout
