"""Inventories that hold more than a fleet: which host has the front, and a box that is not reached. In check mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import play

pytestmark = pytest.mark.processes


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Somebody's web server before three boxes, one of which is not reached."""
    boxes = {
        "f1": {"ansible_connection": "local", "drafthouse_home": str(tmp_path / "f1")},
        "f2": {"ansible_host": "127.0.0.1", "ansible_port": 9, "drafthouse_home": str(tmp_path / "f2")},
        "f3": {"ansible_connection": "local", "drafthouse_home": str(tmp_path / "f3")},
    }
    everywhere = {
        "profile": "cpu-smollm2-ngram", "drafthouse_manage_host": False, "drafthouse_runtime": "process",
        "drafthouse_host": "127.0.0.1", "drafthouse_port": 8000, "drafthouse_models_dir": str(tmp_path / "models"),
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    web = {"ansible_connection": "local", "drafthouse_home": str(tmp_path / "web1")}
    groups = {"boxes": {"hosts": boxes, "vars": {"drafthouse_fleet": {}}}}
    file = tmp_path / "hosts.yml"
    file.write_text(yaml.safe_dump({"all": {"hosts": {"web1": web}, "children": groups, "vars": everywhere}}))
    return file


@pytest.mark.parametrize("limit", ["all", "boxes"])
def test_the_front_is_the_fleets_first_host_and_a_box_that_is_not_reached_is_named(inventory: Path, limit: str) -> None:
    done = play("site.yml", "--tags", "fleet", "--check", "--limit", limit, inventory=str(inventory))
    assert done.status != 0
    assert "fleet_front.yml for f1\n" in done.output
    assert "gateway yet: f1 f2 f3" in " ".join(done.output.split())
    assert "undefined" not in done.output


def test_a_run_without_the_front_says_so(inventory: Path) -> None:
    done = play("site.yml", "--tags", "fleet", "--check", "--limit", "f3", inventory=str(inventory))
    assert "f1, the front, is not in this run and keeps its boxes" in " ".join(done.output.split())
