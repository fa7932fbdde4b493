"""A lane without processes (`make test-fast`): a test that starts one fails, however it does it.

The tests that start processes carry the mark `processes`; the hook here keeps it honest. Python tells of every start
through its audit events (https://docs.python.org/3/library/audit_events.html); multiprocessing's spawn alone has none,
and nothing here uses it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

_STARTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"})


class NoProcesses:
    """A plugin that refuses, and reports, every process that is started while a test runs."""

    def __init__(self) -> None:
        self.watching = False
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def pytest_sessionstart(self) -> None:
        """Have matplotlib look for fonts now: where nobody has drawn yet, it starts a program for that."""
        importlib.import_module("matplotlib.font_manager")

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.watching and event in _STARTS:
            self.seen.append(f"{event} {arguments[:2]!r}"[:200])
            raise RuntimeError(f"a process is started in the lane without them: {event}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Fail the test of which the code under test has swallowed the refusal."""
        report = yield
        if self.seen:
            said = "; ".join(self.seen)
            self.seen.clear()
            report.outcome = "failed"  # type: ignore[attr-defined]
            report.longrepr = f"{item.nodeid} starts a process: {said}: give it the mark 'processes'"  # type: ignore[attr-defined]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Watch from the first fixture to the last."""
        self.watching = True
        try:
            return (yield)
        finally:
            self.watching = False
