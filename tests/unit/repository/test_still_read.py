"""What an earlier release wrote, or was given, is still read: still_read/ holds one of each, from before the rooms."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.crossover import crossovers_of
from drafthouse.analysis.words import RULE_VERSION
from drafthouse.bench.sweep.store import read_ladder
from drafthouse.bench.sweep.text import ladder_lines
from drafthouse.cli.compare import shown
from drafthouse.cli.report import main as report
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.report.archive import history_rows, read_kept
from drafthouse.report.compare.diff import compare
from drafthouse.report.terminal import verdict_table
from drafthouse.serving.history import read_history
from drafthouse.serving.releases import current_server, damaged_releases, earlier_release, read_release

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


def test_a_report_is_listed_and_shown(reports: Path) -> None:
    kept = read_kept(reports / NAME)
    (row,) = history_rows(reports)
    # Its word was given by another rule than today's.
    assert f"{verdict()['word']} (by an earlier rule)" in row
    assert " ".join(verdict()["sentence"].split()) in " ".join(verdict_table(kept.report, width=1000).split())


def test_the_gain_has_its_name_also_where_a_report_calls_it_median(reports: Path) -> None:
    kept = read_kept(reports / NAME).report
    old = verdict()
    assert kept["verdict"]["speedup"] is not None and kept["verdict"]["control"] is not None
    assert kept["verdict"]["speedup"]["gain"] == old["speedup"]["median"]
    assert kept["verdict"]["control"]["gain"] == old["control"]["median"]
    assert kept["kinds"][0]["tok_s"]["baseline"] is not None
    assert kept["kinds"][0]["tok_s"]["baseline"]["median"] > 0


def test_two_reports_are_compared(reports: Path) -> None:
    kept = read_kept(reports / NAME)
    found = compare(kept, kept, 0.05)
    assert (found["against"], found["differs"], found["regressions"]) == ([], [], [])
    assert "B against A" in shown(found, "text")


def test_results_are_judged_again_by_the_rule_of_today(reports: Path) -> None:
    assert report(["--again", str(reports / NAME), "--templates", str(ROOT / "templates")]) == 0
    again = json.loads((reports / NAME / "report.json").read_text("utf-8"))["verdict"]
    before = verdict()
    assert again["rule"] == RULE_VERSION
    assert "rule" not in before
    assert again["word"] == before["word"]
    assert again["speedup"]["n"] == before["speedup"]["n"]
    assert again["speedup"]["gain"] == pytest.approx(before["speedup"]["median"], rel=0.05)
    assert again["scope"] == before["scope"]
    words = {gate["name"]: gate["word"] for gate in again["gates"]}
    assert {gate["name"]: gate["word"] for gate in before["gates"]}.items() <= words.items()
    (row,) = history_rows(reports)
    assert again["word"] in row


def test_a_ladder_is_shown_with_its_crossover() -> None:
    ladder = read_ladder(KEPT / "report" / "ladder.json")
    assert len(ladder_lines(ladder)) > len(ladder["steps"])
    kept = ladder.get("crossover") or {}
    words = {kind: one["word"] for kind, one in kept.items()}
    assert words
    assert {kind: one["word"] for kind, one in crossovers_of(ladder).items()} == words


def test_a_report_that_suggests_a_switch_by_batch_size_is_read(reports: Path) -> None:
    schedule = {"offered": [[1, 11, 3], [12, 16, 0]], "option": "max_concurrency", "settings": 11, "tried": None}
    schedule |= {"overrides": {"speculation": {"options": {"max_concurrency": 11}}}, "command": "make x", "why": "y"}
    for name in ("report.json", "ladder.json"):
        file = reports / NAME / name
        document = json.loads(file.read_text("utf-8"))
        (document["load"] if name == "report.json" else document)["schedule"] = schedule
        file.write_text(json.dumps(document), "utf-8")
    kept = read_kept(reports / NAME)
    assert verdict_table(kept.report, width=1000)
    assert compare(kept, kept, 0.05)["against"] == []
    assert report(["--again", str(reports / NAME), "--templates", str(ROOT / "templates")]) == 0


def test_a_sweep_of_several_client_processes_through_a_front_is_read(tmp_path: Path) -> None:
    ladder = json.loads((KEPT / "report" / "ladder.json").read_text("utf-8"))
    replica = {"name": "box1", "requests": 3, "output_tokens": 9, "failed": None, "said": None}
    for step in ladder["steps"]:
        step["clients"] = [{"where": "me@load1", "requests": 3, "cpu_s": 0.1, "clock_error_ms": 2.0}]
        step["replicas"] = [replica]
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(ladder))
    read = read_ladder(file)
    assert ladder_lines(read) == ladder_lines(read_ladder(KEPT / "report" / "ladder.json"))
    assert crossovers_of(read)  # judged by the rule of today


@pytest.mark.parametrize("inventory", ["local", "workstation", "vastai"])
def test_an_inventory_and_its_profile_resolve(clone: Path, inventory: str) -> None:
    site = site_of_inventory(inventory, clone)
    assert site["port"] == 8000
    assert load_catalog(clone).broken == {}
    name = "cpu-smollm2-ngram" if inventory == "local" else "rtx6000-qwen-eagle3"
    made = resolved_profile(name, site, root=clone)
    assert {"baseline", "speculative"} <= set(made["arms"])
    assert all(one["files"] for one in made["arms"].values())


def test_a_box_knows_what_it_served() -> None:
    home = KEPT / "box"
    assert [event["event"] for event in read_history(home)] == ["served"]
    assert damaged_releases(home) == []
    now = current_server(home)
    assert now is not None
    assert (now["release"], now["arm"]) == ("0001", "baseline")
    release = read_release(home, "0001")
    assert release.resolved["profile"] == "cpu-smollm2-ngram"
    running: Any = release.running["baseline"]
    assert running == {"command": ["serve.sh"]}
    assert earlier_release(home) is None
