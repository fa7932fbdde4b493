"""A laptop's lid over a whole run: everything is stopped while it measures, and goes on later (SIGSTOP, SIGCONT)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.standstill import LATE_S
from drafthouse.core.procfs import commands
from tests.e2e.conftest import play
from tests.e2e.test_interrupt import BEGINS_S, SHORT, Box, Demo
from tests.support.ports import free_port

pytestmark = pytest.mark.soak

CLOSED_S = LATE_S + 20  # longer than the guard's patience with a run that is heard of no more


class Brief(Box):
    """A box whose experiment ends with its two rounds."""

    @property
    def variables(self) -> dict[str, Any]:
        return {**super().variables, "overrides": {"experiment": {**SHORT["experiment"], "budget": 0}}}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Brief(tmp_path, free_port(2))
    yield made
    play("playbooks/stop.yml", **made.variables)


def processes_of(folder: Path) -> Iterator[int]:
    """The run's own processes, Ansible's jobs, the supervisor and the engines."""
    for pid, words in commands():
        if any(str(folder) in word for word in words) and pid != os.getpid():
            yield pid


def test_a_lid_over_the_whole_run(box: Box, figure: Callable[[str], None]) -> None:
    # A server that serves already, so that the guard watches over the run that measures again.
    first = play("site.yml", **box.variables)
    assert first.status == 0, first.output[-3000:]
    demo = Demo(box, again=True)
    demo.until(lambda: demo.ended() or "step 1 of" in demo.text, BEGINS_S)
    stopped = list(processes_of(box.folder))
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(CLOSED_S)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    demo.until(demo.ended, 600.0)
    demo.read(0.1)
    assert demo.process.returncode == 0, demo.text[-3000:]
    steps = [json.loads(path.read_text()) for path in sorted(box.home.rglob("steps/[0-9][0-9].json"))]
    notes = [note for step in steps for note in step["notes"]]
    assert any("stood still" in note or "was stopped by a signal" in note for note in notes), notes
    assert {one["status"] for step in steps for part in step["arms"].values() for one in part["requests"]} == {"ok"}
    assert "an invalid comparison" not in demo.text
    figure(f"{len(stopped)} processes stopped for {CLOSED_S:.0f} s: {notes[0]}")
