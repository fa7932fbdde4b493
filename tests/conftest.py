"""What the tests say at the end: the figures they measured, and what could not run here, by name."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import one_name
from tests.support.no_processes import NoProcesses

one_name.install()

_FIGURES = pytest.StashKey[list[str]]()
_NOT_RUN = (
    "GPU profiles on a GPU (their commands are checked by vLLM's own parser in make test-engines)",
    "the clocks and the energy of a real GPU (NVIDIA's package asks a library that is made here)",
    "TensorRT-LLM and ArcticInference themselves (their YAML by a schema of our own, their flags by vLLM's parser)",
    "SGLang itself (it has no build for a CPU: its flags by its own parser in make test-engines, its figures are made)",
    "NVIDIA's driver and toolkit, Docker's and NVIDIA's own package repositories (make test-hosts: made packages)",
    "Grafana and NVIDIA's DCGM exporter (the dashboard by the types that Grafana publishes, its queries by Prometheus)",
    "downloads from the Hugging Face hub itself (its client runs against a server of the tests)",
)


# What tests pin at first use is theirs: neither written to this clone's own record, nor read from it.
_PINS = tempfile.TemporaryDirectory(prefix="drafthouse-pins-")
os.environ["DRAFTHOUSE_PINS"] = f"{_PINS.name}/pins.json"
# Nor do they read profiles of somebody's own.
os.environ.pop("DRAFTHOUSE_PROFILES", None)

# Tables are as wide as through a pipe, wherever the tests run.
os.environ["COLUMNS"] = "100"

SILENCE_S = 5.0


class Ticking:
    """Says what runs, and for how long, where no test has ended for a while: through a pipe, too."""

    def __init__(self, capture: Any) -> None:
        # While a test runs its output is captured; pytest keeps the file that it was started with here.
        kept = getattr(getattr(capture, "_global_capturing", None), "out", None)
        self._output = getattr(kept, "targetfd_save", 1)
        self._since, self._what = time.monotonic(), "collecting"
        self._said = self._since
        self._ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._what, self._since = nodeid, time.monotonic()

    def pytest_runtest_logreport(self) -> None:
        self._said = time.monotonic()

    def pytest_sessionfinish(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            now = time.monotonic()
            if now - self._said >= SILENCE_S:
                self._said = now
                with contextlib.suppress(OSError):  # the output was closed meanwhile
                    os.write(self._output, f"\n  ... {self._what}: {now - self._since:.0f} s\n".encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-processes", action="store_true", help="fail every test that starts a process")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-processes"):
        config.pluginmanager.register(NoProcesses(), "no-processes")
    config.stash[_FIGURES] = []
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ticking(config.pluginmanager.get_plugin("capturemanager")), "ticking")
    # A shell that puts the tests into the background has them ignore Ctrl-C, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # What is collected stays to the end, and Python's collector would go through it again and again: 2 s a process.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a measured figure for the end of the run, where it is not lost among the output of tests."""
    return request.config.stash[_FIGURES].append


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Where several processes run the tests (`make test-hosts`), one of them says it all.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = session.config.stash[_FIGURES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_FIGURES].extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[_FIGURES]
    if figures:
        terminalreporter.section("measured", sep="-")
        for line in figures:
            terminalreporter.write_line(line)
    if Path("/dev/nvidia0").exists():
        return
    terminalreporter.section("not run here", sep="-")
    for line in _NOT_RUN:
        terminalreporter.write_line(line)
