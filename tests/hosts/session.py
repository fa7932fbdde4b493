"""What a lane with hosts in containers shares: the container engine for as long as the tests run, and a lab."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from drafthouse.core.errors import DrafthouseError
from tests.hosts.hosts import Lab, engine, stop_engine


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the engine before the processes that need it: the first of them to end must not stop it for the others."""
    if session.config.getoption("numprocesses", None):
        with contextlib.suppress(DrafthouseError):  # the tests that need it say what is missing
            engine()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop what was started."""
    if session.config.getoption("numprocesses", None):
        stop_engine()


def put_first(items: list[pytest.Item], files: Sequence[str]) -> None:
    """Put these files first, in this order: processes that take file after file end together where long ones begin."""
    items.sort(key=lambda item: files.index(item.path.name) if item.path.name in files else len(files))


@pytest.fixture(scope="session")
def lab(figure: Callable[[str], None]) -> Iterator[Lab]:
    """A network for the session's hosts; Docker is started where it does not run."""
    try:
        with Lab(say=lambda line: figure(f"hosts: {line}")) as made:
            yield made
    finally:
        stop_engine()
