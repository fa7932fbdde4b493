"""Level 1 on the CPU back end: the shortest of its steps, through site.yml, from the luggage, to their evidence.

What only a GPU has is not looked at (memory, energy), and speeds are not: this machine may be busy.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafthouse.report.evidence import NO_PROFILE, EvidenceFacts, read
from tests.gpu import level1_steps, live, models
from tests.gpu.clock import Clock
from tests.gpu.keep import Keeper
from tests.gpu.level1 import Place, stop
from tests.gpu.llama_build import Built
from tests.support.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.alone]

_FACTS: EvidenceFacts = {
    "schema": "drafthouse.evidence/1", "day": "2026-01-02", "gpu": "none", "driver": "none", "profile": NO_PROFILE,
    "profile_sha256": None, "engine": None, "engine_version": None, "verdict": None, "levels": [1],
    "drafthouse": "0", "files": {},
}  # fmt: skip


def test_its_steps_run_and_leave_evidence(built: Built, unpacked: Path, tmp_path: Path) -> None:
    settings = {
        "drafthouse_engine_program": str(built.program),
        "drafthouse_find_links": str(unpacked / "box"),
        "drafthouse_offline": True,
        "box_env_with_uv": False,
        "drafthouse_home": str(tmp_path / "home"),
        "drafthouse_models_dir": str(tmp_path / "models"),
        "drafthouse_port": free_port(2),
        "report_folder": str(tmp_path / "reports"),
    }
    words = ("-e", json.dumps(settings))
    place = Place(
        words, tmp_path / "home", tmp_path / "work", tmp_path / "reports", most_s=1200, output_tokens=48, on_gpu=False
    )
    keeper = Keeper(tmp_path / "2026-01-02-none-gpu-lane", _FACTS)
    try:
        found = level1_steps.measure(
            "cpu-small",
            place,
            models.SMALL,
            Clock(),
            lambda now: keeper.keep({"level1.json": level1_steps.as_json(now)}),
            level1_steps.SHORT,
        )
    finally:
        stop(place)
    print(json.dumps(found, indent=1))
    assert [run["profile"] for run in found["runs"]] == [step.name for step in level1_steps.SHORT]
    asked = found["live"]
    assert asked
    assert [level["level"] for level in asked["levels"]] == [1, 2, 4]
    assert asked["crossover"]
    assert asked["checks"]["fail"] == 0 < asked["checks"]["ok"]
    assert live.problems(asked, on_gpu=False) == []
    kept = read(keeper.folder)
    assert json.loads((kept.folder / "level1.json").read_text())["runs"] == found["runs"]
