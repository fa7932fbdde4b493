"""A real A/B through site.yml on the real vLLM, on the CPU: n-gram lookup, and a draft model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.house import ROOT

from tests.e2e.conftest import play

# Where the lane's other tests keep the engine: it is made once.
HOME = ROOT / ".cache"


@pytest.fixture(scope="module", params=["cpu-smollm2-vllm-ngram", "cpu-smollm2-vllm-draft"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    reports = tmp_path_factory.mktemp("reports")
    variables = {
        "profile": request.param, "drafthouse_home": str(HOME), "drafthouse_models_dir": str(HOME / "models"),
        "drafthouse_port": 8423, "report_folder": str(reports),
    }  # fmt: skip
    ended = play("site.yml", **variables, remeasure=True)
    yield request.param, ended, reports, variables
    play("playbooks/stop.yml", **variables)


def test_both_arms_are_measured_and_judged(served: Any, figure: Callable[[str], None]) -> None:
    profile, ended, reports, _ = served
    assert ended.status == 0, ended.output[-3000:]
    (folder,) = (reports / profile).iterdir()
    report = json.loads((folder / "report.json").read_text())
    baseline, speculative = (json.loads((folder / f"{arm}.json").read_text()) for arm in ("baseline", "speculative"))
    figure(report["verdict"]["sentence"])
    assert baseline["spec_decode_draft_tokens"] == 0
    assert speculative["spec_decode_source"] == "metrics"
    assert speculative["spec_decode_draft_tokens"] > 100
    assert speculative["failed"] == baseline["failed"] == 0
    assert report["verdict"]["word"] == "pays"
    assert speculative["engine"]["version_answered"].startswith("0.32.0")
    if profile == "cpu-smollm2-vllm-ngram":
        assert report["verdict"]["groups"]["copy-edit"]["speedup"]["median"] >= 1.5
    else:
        assert speculative["spec_decode_acceptance_rate"] > 80
        assert report["synthetic"]


def test_a_second_run_changes_nothing(served: Any, figure: Callable[[str], None]) -> None:
    *_, variables = served
    again = play("site.yml", **variables)
    assert again.status == 0
    assert again.changed == 0
    figure(f"converged run: {again.seconds:.1f} s")
