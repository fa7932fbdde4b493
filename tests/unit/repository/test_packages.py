"""What the wheel and the source package are made of: the user's own entries stay in the clone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from drafthouse.profiles.own_folders import own_models
from drafthouse.profiles.workspace import ROOT

PARTS = (
    *("benchmarks/mixed.yml", "inventory/local/group_vars/all.yml", "playbooks/tasks/a.yml", "profiles/mine.yml"),
    *("roles/a/tasks/main.yml", "templates/a/b.j2"),
)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that is built as the clone is, with one file of each part."""
    for name in ("pyproject.toml", ".gitignore", "README.md", "LICENSE", "ansible.cfg", "site.yml"):
        shutil.copy(ROOT / name, tmp_path)
    names = ["src/drafthouse/__init__.py", "profiles/catalog/models.yml", *PARTS]
    for path in [*(tmp_path / name for name in names), own_models(tmp_path) / "my-model.yml"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


@pytest.mark.parametrize(("builder", "below"), [(WheelBuilder, "drafthouse/data/"), (SdistBuilder, "")])
def test_a_package_has_the_catalogue_and_no_entry_of_ones_own(builder: Any, below: str, clone: Path) -> None:
    files = {Path(one.distribution_path).as_posix() for one in builder(str(clone)).recurse_included_files()}
    assert {f"{below}{name}" for name in (*PARTS, "profiles/catalog/models.yml")} <= files
    assert not [name for name in files if "my-model" in name]
