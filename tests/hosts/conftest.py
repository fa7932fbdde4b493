"""Hosts for the tests: one lab a session (a process, where several run the tests), fresh hosts a module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError

from tests.hosts.hosts import Host, Lab, engine, stop_engine


def pytest_sessionstart(session: pytest.Session) -> None:
    # The first of several processes to end must not stop what the others still need.
    if session.config.getoption("numprocesses", None):
        with contextlib.suppress(HouseError):  # the tests that need it say what is missing
            engine()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("numprocesses", None):
        stop_engine()


@pytest.fixture(scope="session")
def lab(figure: Callable[[str], None]) -> Iterator[Lab]:
    """A network for the session's hosts; Docker is started where it does not run."""
    try:
        with Lab(say=lambda line: figure(f"hosts: {line}")) as made:
            yield made
    finally:
        stop_engine()


def _started(lab: Lab, kind: str) -> Iterator[Host]:
    host = lab.start(kind)
    yield host
    host.remove()


@pytest.fixture(scope="module")
def workstation(lab: Lab) -> Iterator[Host]:
    """A bare workstation: systemd, no container engine."""
    yield from _started(lab, "workstation")


@pytest.fixture(scope="module")
def workstation_docker(lab: Lab) -> Iterator[Host]:
    """A workstation whose container engine runs."""
    yield from _started(lab, "workstation-docker")


@pytest.fixture(scope="module")
def rental(lab: Lab) -> Iterator[Host]:
    """A rented container: sshd, no systemd, no privileges."""
    yield from _started(lab, "rental")


@pytest.fixture(scope="module")
def peer(lab: Lab) -> Iterator[Host]:
    """A machine beside the boxes."""
    yield from _started(lab, "peer")
