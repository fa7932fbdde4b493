"""A profile for rented boxes, and the bench to rent one for it from a server that behaves as vast.ai's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.fakes.vast_server import vast_server
from tests.support.vast_bench import PROFILE, Bench, made


@pytest.fixture(scope="module")
def resolved() -> Any:
    return resolved_profile(PROFILE, site_of_inventory("vastai"))


@pytest.fixture
def bench(tmp_path: Path, resolved: Any) -> Iterator[Bench]:
    with vast_server() as vast:
        yield made(vast, tmp_path, resolved)
