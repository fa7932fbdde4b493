"""Arms that die, never get ready, never draft, or were cut off while they were measured; then the teardown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Play
from tests.support.tales import TALES

PROFILE = "cpu-smollm2-ngram"


def small(**experiment: object) -> dict[str, object]:
    """An experiment whose arms run one after the other; one thread, since other tests run beside it."""
    return {"experiment": {**TALES, "schedule": "alternated", **experiment}, "serve": {"threads": 1}}


@pytest.fixture(scope="module")
def installed(run: Play) -> None:
    """Environments and weights in place, as after a first run."""
    for playbook in ("host", "weights"):
        assert run(f"site.yml --tags {playbook}", profile=PROFILE).status == 0


def test_an_engine_that_dies_at_start(run: Play, installed: None, home: Path) -> None:
    (weights,) = (home / "models").rglob("*.F32.gguf")
    whole = weights.read_bytes()
    try:
        weights.write_bytes(b"GGUF, but not a model")
        ended = run("site.yml --tags experiment", profile=PROFILE, overrides=small(rounds=3))
    finally:
        weights.write_bytes(whole)
    assert ended.status != 0
    (found,) = ended.lines("found")
    assert "the baseline arm died" in found
    assert "GGUF" in ended.output.split(found)[1].split("needed: ")[0]


def test_an_engine_that_never_gets_ready(run: Play, installed: None, home: Path) -> None:
    (launcher,) = (home / "home" / "engines").rglob("bin/llama-server")
    own = launcher.read_text()
    try:
        launcher.write_text("#!/bin/sh\necho loading for ever\nexec sleep 600\n")
        ended = run(
            "site.yml --tags experiment", profile=PROFILE, overrides=small(rounds=4), serve_ready_timeout_s=3,
        )  # fmt: skip
    finally:
        launcher.write_text(own)
    assert ended.status != 0
    (found,) = ended.lines("found")
    assert "the baseline arm was not ready after 3 s" in found
    assert "loading for ever" in ended.output


@pytest.mark.soak
def test_arms_one_after_the_other_and_a_run_that_was_cut_off(run: Play, installed: None, home: Path) -> None:
    overrides = small()
    assert run("site.yml --tags experiment", profile=PROFILE, overrides=overrides).status == 0
    steps = sorted((home / "home" / "results" / PROFILE).rglob("steps/04.json"))
    folder = max(steps, key=lambda path: path.stat().st_mtime).parent
    arms = [list(json.loads(path.read_text())["arms"]) for path in sorted(folder.iterdir())]
    # By their files; in time they were measured in balance.
    assert arms == [["baseline"], ["speculative"], ["baseline"], ["speculative"]]
    began = [json.loads(path.read_text())["started_unix_s"] for path in sorted(folder.iterdir())]
    assert began[0] < began[1] < began[3] < began[2]
    # As a run leaves it that was killed while it measured the third step.
    kept = (folder / "01.json").stat().st_mtime_ns
    for name in ("03.json", "04.json"):
        (folder / name).unlink()
    for arm in ("baseline", "speculative"):
        (folder.parent / f"{arm}.json").unlink()
    again = run("site.yml", profile=PROFILE, overrides=overrides)
    assert (folder / "01.json").stat().st_mtime_ns == kept
    assert (folder / "04.json").exists()
    assert again.status == 0
    assert "invalid" not in again.output.split("PLAY RECAP")[1]


# Every day such a pair is judged in tests/unit/analysis/test_verdict.py.
@pytest.mark.soak
def test_an_arm_that_never_drafts_is_invalid(run: Play, installed: None) -> None:
    overrides = {**small(schedule="auto"), "speculation": {"options": {"ngram_size": 900}}}
    ended = run("site.yml", profile=PROFILE, overrides=overrides)
    assert ended.status != 0
    assert any("an invalid comparison" in line for line in ended.lines("found"))
    assert "invalid" in ended.output.split("PLAY RECAP")[1]


def test_teardown_leaves_the_weights_unless_told(run: Play, installed: None, home: Path) -> None:
    assert run("playbooks/teardown.yml", profile=PROFILE).status == 0
    assert not (home / "home").exists()
    assert list((home / "models").rglob("*.gguf"))
    assert run("playbooks/teardown.yml", profile=PROFILE).changed == 0
    assert run("playbooks/teardown.yml", profile=PROFILE, weights=True).status == 0
    assert not list((home / "models").rglob("*.gguf"))
