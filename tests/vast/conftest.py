"""A vast.ai whose instances are real containers: what `make rent` gets, Ansible reaches over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.hosts import Lab
from tests.hosts.session import lab, pytest_sessionfinish, pytest_sessionstart
from tests.vast.cloud import Cloud

__all__ = ["lab", "pytest_sessionfinish", "pytest_sessionstart"]


LONG = ("test_whole_way.py", "test_three_at_once.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long ones first, so that each of two processes gets one of them."""
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture
def cloud(lab: Lab, tmp_path: Path) -> Iterator[Cloud]:
    """The market, this clone's ledger in a folder of its own, and a person's key and token in the environment."""
    with Cloud(lab, tmp_path) as made:
        yield made
