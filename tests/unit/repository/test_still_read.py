"""What an earlier release wrote, or was given, is still read: still_read/ holds one of each, from before the rooms."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.crossover import fill
from drafthouse.bench.sweep.store import read_ladder
from drafthouse.bench.sweep.text import ladder_lines
from drafthouse.cli.compare import shown
from drafthouse.cli.report import main as report
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.report.archive import history_rows, read_kept
from drafthouse.report.compare.diff import compare
from drafthouse.report.terminal import verdict_table
from drafthouse.serving.history import read_history
from drafthouse.serving.releases import current, damaged_releases, earlier, read_release

KEPT = Path(__file__).parent / "still_read"
NAME = "cpu-smollm2-ngram/20261121-111742-box-7"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    shutil.copytree(KEPT / "report", tmp_path / NAME)
    return tmp_path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of today with the profiles and inventories of then."""
    for name in ("benchmarks", "templates"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(KEPT / "profiles", tmp_path / "profiles")
    (tmp_path / "profiles" / "catalog").symlink_to(ROOT / "profiles" / "catalog")
    shutil.copytree(KEPT / "inventory", tmp_path / "inventory")
    return tmp_path


def verdict() -> dict[str, Any]:
    told: dict[str, Any] = json.loads((KEPT / "report" / "report.json").read_text("utf-8"))["verdict"]
    return told


def sentences(ladder: dict[str, Any]) -> dict[str, str]:
    return {kind: one["sentence"] for kind, one in ladder["crossover"].items()}


def test_a_report_is_listed_and_shown(reports: Path) -> None:
    kept = read_kept(reports / NAME)
    (row,) = history_rows(reports)
    assert verdict()["word"] in row
    assert " ".join(verdict()["sentence"].split()) in " ".join(verdict_table(kept.report, width=1000).split())


def test_two_reports_are_compared(reports: Path) -> None:
    kept = read_kept(reports / NAME)
    found = compare(kept, kept, 0.05)
    assert (found["against"], found["differs"], found["regressions"]) == ([], [], [])
    assert "B against A" in shown(found, "text")


def test_results_are_judged_again_as_they_were(reports: Path) -> None:
    assert report(["--again", str(reports / NAME), "--templates", str(ROOT / "templates")]) == 0
    again = json.loads((reports / NAME / "report.json").read_text("utf-8"))["verdict"]
    # Looked for since then, and nothing of it is in them.
    assert again.pop("acceptance_findings") == []
    # How an engine's drafts are seen, a gate's rule and some sentences have other words since then.
    before = verdict()
    for gate in (*again["gates"], *before["gates"]):
        del gate["said"], gate["rule"]
    for part in ("sentence", "load"):
        before[part] = before[part].replace("the word is the A/B's, and", "the A/B decides, though")
    for arm in before["counts"].values():
        assert set(arm.values()) == {"an older result does not hold it"}
        arm.update(dict.fromkeys(arm, "the result is too old to contain it"))
    assert {**again, "drafting": None} == {**before, "drafting": None}


def test_a_ladder_is_shown_with_its_crossover() -> None:
    ladder = read_ladder(KEPT / "report" / "ladder.json")
    assert len(ladder_lines(ladder)) > len(ladder["steps"])
    assert sentences(dict(ladder)) == sentences({**ladder, "crossover": fill(ladder)})


@pytest.mark.parametrize("inventory", ["local", "workstation", "vastai"])
def test_an_inventory_and_its_profile_resolve(clone: Path, inventory: str) -> None:
    site = site_of_inventory(inventory, clone)
    assert site["port"] == 8000
    assert load_house(clone).broken == {}
    name = "cpu-smollm2-ngram" if inventory == "local" else "rtx6000-qwen-eagle3"
    made = resolved_profile(name, site, root=clone)
    assert {"baseline", "speculative"} <= set(made["arms"])
    assert all(one["files"] for one in made["arms"].values())


def test_a_box_knows_what_it_served() -> None:
    home = KEPT / "box"
    assert [event["event"] for event in read_history(home)] == ["served"]
    assert damaged_releases(home) == []
    now = current(home)
    assert now is not None
    assert (now["release"], now["arm"]) == ("0001", "baseline")
    release = read_release(home, "0001")
    assert release.resolved["profile"] == "cpu-smollm2-ngram"
    running: Any = release.running["baseline"]
    assert running == {"command": ["serve.sh"]}
    assert earlier(home) is None
