"""A ladder of the real engine, through Ansible: measured, killed and gone on with, and an engine that dies in it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.crossover import crossovers_of, over_contexts
from tests.e2e.conftest import Ended, Play

pytestmark = pytest.mark.soak

PROFILE = "cpu-smollm2-ngram"
LEVELS = [1, 2, 4]


def overrides(seconds: float, **ladder: Any) -> dict[str, Any]:
    return {
        "serve": {"parallel": max(LEVELS), "context": 8192},
        "experiment": {
            "suites": ["mixed"], "once": [], "prompts_per_kind": {"declared": 4, "others": 1}, "schedule": "alternated",
            "budget": 0,
            "max_output_tokens": 48,
            "ladder": {
                "levels": LEVELS, "seconds": seconds, "kinds": ["copy-edit"],
                "limits": {"ttft_ms": 5000, "tpot_ms": 500}, **ladder,
            },
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def installed(run: Play) -> None:
    """Environments and weights in place, as after a first run."""
    for playbook in ("host", "weights"):
        assert run(f"site.yml --tags {playbook}", profile=PROFILE).status == 0


def ladder_of(home: Path) -> Path:
    """The ladder of the newest result, which may still grow."""
    found = sorted((home / "home" / "results" / PROFILE).rglob("ladder.json"), key=lambda path: path.stat().st_mtime)
    return found[-1]


def test_both_arms_at_all_levels(run: Play, installed: None, home: Path, figure: Callable[[str], None]) -> None:
    ended = run("site.yml --tags experiment", profile=PROFILE, overrides=overrides(4))
    assert ended.status == 0
    path = ladder_of(home)
    ladder = json.loads(path.read_text())
    steps = ladder["steps"]
    assert {(step["arm"], step["level"], step["round"]) for step in steps} == {
        (arm, level, number) for arm in ("baseline", "speculative") for level in LEVELS for number in (1, 2)
    }
    assert {step["status"] for step in steps} <= {"ok"}
    for step in steps:
        assert step["completed"] == step["num_prompts"] >= step["level"]
        # The rate is that of the tokens which came: at most the last wave of them lay beyond full load.
        came = step["completed"] * step["mean_output_tokens"]
        assert step["output_throughput"] * step["duration_s"] > 0.4 * came
        assert (step["spec_decode_acceptance_rate"] is not None) == (step["arm"] == "speculative")
        figure(
            f"ladder {step['arm']} {step['level']}: {step['output_throughput']:.0f} tok/s, "
            f"{step['per_user_tok_s']:.0f} a user, {step['ended_by']}"
        )
    assert set(crossovers_of(ladder)) == {"copy-edit"}
    assert not list(path.parent.rglob("*.part.json"))
    assert not list(path.parent.rglob("*.new"))
    again = run("site.yml --tags experiment", profile=PROFILE, overrides=overrides(4))
    assert (again.status, again.changed) == (0, 0)
    assert json.loads(path.read_text()) == ladder


def test_contexts_beside_the_load(run: Play, installed: None, home: Path, figure: Callable[[str], None]) -> None:
    wanted = {**overrides(4, levels=[1], contexts=[256, 1024]), "serve": {"parallel": 1, "context": 4096}}
    assert run("site.yml --tags experiment", profile=PROFILE, overrides=wanted).status == 0
    ladder = json.loads(ladder_of(home).read_text())
    assert {step["kind"] for step in ladder["steps"]} == {"copy-edit at 256 tokens", "copy-edit at 1024 tokens"}
    assert {step["status"] for step in ladder["steps"]} <= {"ok"}
    turned = over_contexts(ladder)
    assert turned is not None
    (crossover,) = (turned["crossover"] or {}).values()
    figure(f"over context: {crossover['sentence']}")
    # Longer prompts take longer until the first token.
    short, long = (
        min(step["ttft_ms"]["median"] for step in ladder["steps"] if step["kind"].endswith(f" at {tokens} tokens"))
        for tokens in (256, 1024)
    )
    assert long > 2 * short


def in_background(run: Play, given: dict[str, Any]) -> tuple[threading.Thread, list[Ended]]:
    ended: list[Ended] = []
    thread = threading.Thread(
        target=lambda: ended.append(run("site.yml --tags experiment", profile=PROFILE, overrides=given))
    )
    thread.start()
    return thread, ended


def wait_for_steps(home: Path, number: int, before: set[Path], seconds: float = 300) -> Path:
    """Wait until a ladder that was not there before has so many steps."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        new = set((home / "home" / "results").rglob("ladder.json")) - before
        if new and len(json.loads(min(new).read_text())["steps"]) >= number:
            return min(new)
        time.sleep(0.1)
    raise AssertionError("no ladder")


def engine_pids(home: Path) -> list[int]:
    """The engines that run out of this home."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"--alias" in words and str(home).encode() in words:
            found.append(int(path.parent.name))
    return found


def test_an_engine_that_is_killed_in_a_step_is_back_for_the_next(
    run: Play, installed: None, home: Path, figure: Callable[[str], None]
) -> None:
    before = set((home / "home" / "results").rglob("ladder.json"))
    thread, ended = in_background(run, overrides(6, narrow=0.001))
    path = wait_for_steps(home, 1, before)
    time.sleep(2)
    pids = engine_pids(home)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    thread.join(900)
    assert ended[0].status == 0
    ladder = json.loads(path.read_text())
    broken = [step for step in ladder["steps"] if step["status"] == "broken"]
    assert [(step["ended_by"], step["restarted"]) for step in broken] == [("died", True)]
    figure(f"the engine was killed in a step: {broken[0]['notes']}")
    assert len(ladder["steps"]) == 2 * 2 * len(LEVELS)
    assert [step["status"] for step in ladder["steps"]].count("ok") == len(ladder["steps"]) - 1


def test_a_run_that_is_killed_in_the_ladder_goes_on_there(run: Play, installed: None, home: Path) -> None:
    given = overrides(5, narrow=0.002)
    before = set((home / "home" / "results").rglob("ladder.json"))
    thread, ended = in_background(run, given)
    path = wait_for_steps(home, 2, before)
    lock = home / "home" / "benchmark.lock"
    os.kill(int(lock.read_text()), signal.SIGKILL)
    thread.join(900)
    assert ended[0].status != 0
    kept = json.loads(path.read_text())["steps"]
    part = list(path.parent.rglob("*.part.json"))
    assert len(part) == 1
    measured = part[0].read_text()
    again = run("site.yml --tags experiment", profile=PROFILE, overrides=given)
    assert again.status == 0
    assert json.loads(path.read_text())["steps"][: len(kept)] == kept
    # What came before the ladder was not measured again.
    first = json.loads((path.parent / "steps" / "01.json").read_text())
    assert first["started_unix_s"] == json.loads(measured)["started_unix_s"]
