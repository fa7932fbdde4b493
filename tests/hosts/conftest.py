"""Hosts for the tests: one lab a session (a process, where several run the tests), fresh hosts a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.hosts import Host, Lab
from tests.hosts.session import lab, put_first, pytest_sessionfinish, pytest_sessionstart

__all__ = ["lab", "pytest_sessionfinish", "pytest_sessionstart"]

LONG = (
    *("test_site_workstation.py", "test_change.py", "test_doctor.py", "test_kills.py", "test_monitoring.py"),
    *("test_site_rental.py", "test_container_engine.py", "test_driver.py", "test_firewall.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long ones: the process with the last of them would end minutes after the others."""
    put_first(items, LONG)


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


@pytest.fixture(scope="module")
def image(lab: Lab) -> Iterator[str]:
    """The engine's image, where a bare machine can pull it."""
    registry = lab.start("registry")
    yield lab.publish_engine(registry)
    registry.remove()
