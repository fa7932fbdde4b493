"""offline.py as it is rendered: the same speculation in vLLM's Python API, without a server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.e2e.conftest import play

PROFILE = "cpu-smollm2-vllm-ngram"
HOME = ROOT / ".cache"
PROMPT = "Copy this text exactly: the river ran under the bridge, past the mill, past the mill, past the mill."


@pytest.fixture(scope="module")
def resolved() -> Any:
    """The profile with its engine and its weights in place."""
    variables = {"profile": PROFILE, "drafthouse_home": str(HOME), "drafthouse_models_dir": str(HOME / "models")}
    for phase in ("host", "weights"):
        assert play(f"site.yml --tags {phase}", **variables).status == 0
    site = {**site_of_inventory("local"), "home": str(HOME), "models_dir": str(HOME / "models")}
    return resolved_profile(PROFILE, site)


@pytest.mark.parametrize("arm", [pytest.param("baseline", marks=pytest.mark.soak), "speculative"])
def test_it_answers_and_tells_what_was_drafted(resolved: dict[str, Any], arm: str, tmp_path: Path) -> None:
    (script,) = [file["content"] for file in resolved["extras"] if file["path"] == f"{arm}/offline.py"]
    path = tmp_path / "offline.py"
    path.write_text(script)
    python = f"{resolved['engine']['home']}/bin/python"
    done = subprocess.run([python, str(path), PROMPT], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    drafted = [line.split()[1] for line in lines if line.startswith("vllm:spec_decode_num_draft_tokens ")]
    if arm == "baseline":
        assert drafted == []
    else:
        assert float(drafted[0]) > 0
    assert any(line and "vllm:" not in line for line in lines)
