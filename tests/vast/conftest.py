"""A vast.ai whose instances are real containers: what `make rent` gets, Ansible reaches over SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.hosts import Lab, stop_engine
from tests.vast.cloud import Cloud


@pytest.fixture(scope="session")
def lab(figure: Callable[[str], None]) -> Iterator[Lab]:
    """A network for the rented containers; Docker is started where it does not run."""
    try:
        with Lab(say=lambda line: figure(f"hosts: {line}")) as made:
            yield made
    finally:
        stop_engine()


@pytest.fixture
def cloud(lab: Lab, tmp_path: Path) -> Iterator[Cloud]:
    """The market, this clone's ledger in a folder of its own, and a person's key and token in the environment."""
    with Cloud(lab, tmp_path) as made:
        yield made
