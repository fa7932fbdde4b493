"""A vast.ai whose instances are real containers: what `make rent` gets, Ansible reaches over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.hosts import Lab
from tests.hosts.session import lab, put_first, pytest_sessionfinish, pytest_sessionstart
from tests.vast.cloud import Cloud

__all__ = ["lab", "pytest_sessionfinish", "pytest_sessionstart"]

LONG = ("test_three_at_once.py", "test_whole_way.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each of two processes one of the long ones."""
    put_first(items, LONG)


@pytest.fixture
def cloud(lab: Lab, tmp_path: Path) -> Iterator[Cloud]:
    """The market, this clone's ledger in a folder of its own, and a person's key and token in the environment."""
    with Cloud(lab, tmp_path) as made:
        yield made
