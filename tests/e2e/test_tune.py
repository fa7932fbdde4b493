"""The tuner with the real llama.cpp server: it keeps its budget, a kill included, and says if anything is better."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.schema import Findings, check
from drafthouse.profiles.schemas import PROFILE
from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.soak

NAME = "cpu-smollm2-ngram"
FOLDER = ROOT / "build" / "tune" / f"{NAME}-local"
BUDGET_S = 1800


@pytest.fixture(scope="module")
def site(home: Path, port: int) -> Iterator[dict[str, Any]]:
    """The session's home, as the inventory's variables name it; the search's own folder goes at the end."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    yield {
        "drafthouse_home": str(home / "home"),
        "drafthouse_models_dir": str(home / "models"),
        "drafthouse_port": port,
    }
    shutil.rmtree(FOLDER, ignore_errors=True)


def command(site: dict[str, Any], target: Path, *settings: str) -> list[str]:
    """The command; the profile goes into a folder of the test's own."""
    return [
        sys.executable, str(ROOT / "scripts" / "drafthouse"), "tune", NAME, "--inventory", "local", "--to", str(target),
        "--budget", f"{BUDGET_S}s", *(word for setting in settings for word in ("--set", setting)),
        "--", "-e", json.dumps(site),
    ]  # fmt: skip


def start(words: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("a") as file:
        return subprocess.Popen(words, cwd="/", stdout=file, stderr=file, text=True, start_new_session=True)


def journal() -> list[dict[str, Any]]:
    path = FOLDER / "journal.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def done() -> list[str]:
    """The tasks that the journal has outcomes of."""
    return [str(line["task"]) for line in journal() if line.get("event") == "done"]


@pytest.fixture(scope="module")
def words(site: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A profile that begins with K = 1: too little for copying, where a lookup's guesses are right for long.

    Two options of the server are tuned with K and method, and the best servers are measured under load.
    """
    target = tmp_path_factory.mktemp("tuned") / f"{NAME}-tuned.yml"
    options = ("tunable.serve.threads=[1]", "tunable.serve.parallel=[4]", "tunable.load=4")
    few = ("tunable.num_speculative_tokens=[1,4,8,16]",)
    return command(site, target, "speculation.num_speculative_tokens=1", *options, *few)


@pytest.fixture(scope="module")
def tuned(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Kill it in its third trial, start it again, and let it end; its output, and the seconds that it took in all."""
    log = tmp_path_factory.mktemp("log") / "tune.log"
    begun = time.monotonic()
    first = start(words, log)
    while len(done()) < 2 and first.poll() is None:
        time.sleep(0.5)
    time.sleep(3)
    assert first.poll() is None, log.read_text()
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    took = time.monotonic() - begun
    begun = time.monotonic()
    status = start(words, log).wait(BUDGET_S + 60)
    took += time.monotonic() - begun
    text = log.read_text()
    print(text)
    assert status == 0, text[-3000:]
    return text, took


def test_the_budget_holds_a_kill_included(tuned: tuple[str, float], figure: Callable[[str], None]) -> None:
    text, took = tuned
    figure(f"tuner on llama.cpp: {took:.0f} s of a budget of {BUDGET_S} s, {len(done())} trials")
    assert took <= BUDGET_S
    assert "continuing with" in text


def test_no_trial_was_measured_twice(tuned: tuple[str, float]) -> None:
    assert len(done()) == len(set(done())) >= 8


def test_it_improves_on_a_poor_setting(
    tuned: tuple[str, float], words: list[str], figure: Callable[[str], None]
) -> None:
    result = json.loads((FOLDER / "result.json").read_text())
    figure(result["sentence"])
    assert result["word"] == "faster"
    assert result["over_profile"]["low"] > 1.0
    assert " K=1 " not in f"{result['winner']} "


def test_both_options_were_tried_and_the_best_stand_in_the_plot_under_load(
    tuned: tuple[str, float], figure: Callable[[str], None]
) -> None:
    text, _ = tuned
    result = json.loads((FOLDER / "result.json").read_text())
    tried = [row["candidate"] for row in result["tried"]]
    assert any("threads=1" in name for name in tried)
    assert any("parallel=4" in name for name in tried)
    points = {point["name"]: point for point in result["loaded"]}
    assert len(points) >= 3
    assert "without speculation" in points
    for point in points.values():
        for gain in (point["user_gain"], point["server_gain"]):
            assert gain["low"] <= gain["gain"] <= gain["high"]
    assert any(point["on_front"] for point in points.values())
    assert "Most tokens per second for 4 concurrent requests: " in text
    assert "<svg" in (FOLDER / "under-load.svg").read_text()
    figure(next(line for line in text.splitlines() if line.startswith("Most tokens per second")))


def test_the_new_profile_has_its_evidence(tuned: tuple[str, float], words: list[str]) -> None:
    new = yaml.safe_load(Path(words[words.index("--to") + 1]).read_text())
    findings = Findings("tuned")
    assert check(new, PROFILE, findings), findings.problems
    assert new["speculation"]["num_speculative_tokens"] > 1
    assert new["tuned"]["from"] == NAME
    assert new["tuned"]["over_baseline"]["prompts"] >= 6
    assert len(new["tuned"]["tried"]) >= 4


def test_nothing_is_left_running(tuned: tuple[str, float], site: dict[str, Any]) -> None:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(site["drafthouse_home"].encode() in line for line in lines)


def test_the_same_command_again_measures_nothing(tuned: tuple[str, float], words: list[str]) -> None:
    before = done()
    begun = time.monotonic()
    again = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=180, check=False)
    assert again.returncode == 0, again.stderr
    assert time.monotonic() - begun < 20
    assert done() == before


def test_from_the_profile_as_it_ships_it_says_what_is_so(
    tuned: tuple[str, float], site: dict[str, Any], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    target = tmp_path / "tuned.yml"
    begun = time.monotonic()
    ended = subprocess.run(
        command(site, target), cwd="/", capture_output=True, text=True, timeout=BUDGET_S + 60, check=False
    )
    assert time.monotonic() - begun <= BUDGET_S
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads((FOLDER / "result.json").read_text())
    figure(f"from K=8: {result['sentence']}")
    # One of the judged words: a search that comes to no end is no answer.
    assert result["word"] in ("faster", "as fast", "no faster", "kept")
    assert target.exists() == (result["word"] in ("faster", "as fast"))
    assert ended.stdout.startswith(result["sentence"])
