"""A real A/B through site.yml on the CPU: every method of vLLM that runs there, and llama.cpp with a draft model.

The reports must tell them apart. `make test` serves llama.cpp with n-gram lookup, `test_pays_or_not.py` with drafts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.prometheus_rules import SERIES
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_from
from tests.e2e.conftest import Ended, play
from tests.support.engines import ask
from tests.support.made_models import made_model, own_folder
from tests.support.smoke import answer_of, smoke
from tests.support.verdicts import consistent

pytestmark = pytest.mark.alone

# Where the lane's other tests keep the engine: it is made once.
HOME = ROOT / ".cache"
PORT = 8423
# Every day the one that pays; `test_random_heads.py` the heads that do not. Each takes some minutes. Those that are not
# shipped are profiles of one's own (`tests/support/made_models.py`).
PROFILES = [
    "cpu-smollm2-vllm-ngram",
    pytest.param("cpu-smollm2-vllm-eagle3", marks=pytest.mark.soak),
    pytest.param("cpu-smollm2-vllm-dflash", marks=pytest.mark.soak),
    pytest.param("cpu-smollm2-vllm-mtp", marks=pytest.mark.soak),
    pytest.param("cpu-smollm2-draft", marks=pytest.mark.soak),
    pytest.param("cpu-smollm2-vllm-draft", marks=pytest.mark.soak),
    pytest.param("cpu-smollm2-vllm-suffix", marks=pytest.mark.soak),
]
# The fewest prompts that a verdict needs, one of each other kind, and the rounds to begin with.
OVERRIDES = {
    "experiment": {"prompts_per_kind": {"declared": 6, "others": 1}, "max_output_tokens": 24, "budget": 0},
}
# What the engine itself calls the method, by profile.
METHODS = {"draft": "draft_model"}
# Their weights are random: whatever they draft is refused.
RANDOM_HEADS = {"eagle3", "dflash", "mtp"}
# What is made before a profile can be served, by profile.
MADE = {
    "cpu-smollm2-vllm-draft": "smollm2-135m-hf-x3",
    **{f"cpu-smollm2-vllm-{kind}": f"smollm2-135m-{kind}-random" for kind in RANDOM_HEADS},
}


@dataclass
class Served:
    """A profile that was measured, and whose better arm serves."""

    profile: str
    ended: Ended
    variables: dict[str, Any]
    report: dict[str, Any]
    results: dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=PROFILES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    reports = tmp_path_factory.mktemp("reports")
    if request.param in MADE:
        made_model(MADE[request.param])
    variables = {
        "drafthouse_profiles_dir": str(own_folder(tmp_path_factory.mktemp("own") / "profiles")),
        "profile": request.param, "drafthouse_home": str(HOME), "drafthouse_models_dir": str(HOME / "models"),
        "drafthouse_port": PORT, "report_folder": str(reports), "overrides": OVERRIDES,
    }  # fmt: skip
    ended = play("site.yml", **variables, remeasure=True)
    assert ended.status == 0, ended.output[-3000:]
    (folder,) = (reports / request.param).iterdir()
    yield Served(
        request.param,
        ended,
        variables,
        json.loads((folder / "report.json").read_text()),
        {arm: json.loads((folder / f"{arm}.json").read_text()) for arm in ("baseline", "speculative")},
    )
    play("playbooks/stop.yml", **variables)


def resolved(served: Served) -> Any:
    site = {"drafthouse_manage_host": False, "drafthouse_runtime": "process", "drafthouse_host": "127.0.0.1"}
    return resolved_profile(served.profile, site_from({**site, **served.variables}))


def test_both_arms_are_measured_and_judged(served: Served, figure: Callable[[str], None]) -> None:
    verdict, speculative = served.report["verdict"], served.results["speculative"]
    figure(f"{served.profile}: {verdict['sentence']}")
    assert served.results["baseline"]["spec_decode_draft_tokens"] == 0
    assert speculative["spec_decode_source"] == ("response" if "vllm" in served.profile else "metrics")
    assert speculative["spec_decode_draft_tokens"] > 100
    assert speculative["failed"] == served.results["baseline"]["failed"] == 0
    own = served.profile.rpartition("-")[2]
    method = METHODS.get(own, own)
    if "vllm" in served.profile:
        assert speculative["engine"]["version_answered"].startswith("0.32.0")
        assert f"'method': '{method}'" in str(served.report["resolved"]["method"]["settings"])
    else:
        assert served.report["resolved"]["method"]["settings"]["--spec-type"] == "draft-simple"
    assert any(method in row["which"] or "draft-simple" in row["which"] for row in served.report["setup"])
    if own in RANDOM_HEADS:
        assert verdict["word"] == "does not pay", verdict["sentence"]
        assert speculative["spec_decode_acceptance_rate"] < 5
        assert "are random" in served.report["marks"]["synthetic"]
    else:
        # Two starts of vLLM on a busy processor may differ by 20 %, and two rounds then leave a gain of 2.7 in doubt.
        assert consistent(served.report) != "does not pay", [verdict["sentence"], *verdict["reasons"]]
        # A lookup also drafts in vain, where nothing is repeated; a draft of the target's own kind seldom errs.
        assert speculative["spec_decode_acceptance_rate"] > (80 if own == "draft" else 20)
    if served.profile.endswith("ngram"):  # not by seconds: a neighbour of this machine once took the whole gain
        assert served.report["acceptance"]["groups"]["copy-edit"]["length"] > 1.5


def test_smoke_gets_an_answer_from_the_arm_that_is_left(served: Served, tmp_path: Path) -> None:
    profile = resolved(served)
    key = Path(profile["key_file"]).read_text().strip()
    done = smoke(profile, tmp_path, f"http://127.0.0.1:{PORT}", key)
    assert answer_of(done)
    assert key not in done.stdout + done.stderr


# llama.cpp's are read by the real Prometheus (`tests/health/test_monitoring.py`).
@pytest.mark.parametrize("served", PROFILES[:1], indirect=True)
def test_it_shows_all_that_the_monitoring_records_from(served: Served) -> None:
    status, text = ask(f"http://127.0.0.1:{PORT}/metrics")
    assert status == 200
    shown = {re.split(r"[{ ]", line)[0] for line in text.splitlines()}
    names = SERIES["vllm"]
    histograms = [
        f"{name}_{part}" for name in (names.ttft, names.tpot, names.queue) for part in ("bucket", "sum", "count")
    ]
    numbers = [names.output_tokens, names.input_tokens, names.running, names.waiting, names.kv_cache]
    assert {*numbers, *histograms} <= shown
    if served.report["verdict"]["word"] == "pays":  # else the baseline was left serving
        assert {names.drafts, names.draft_tokens, names.accepted_tokens, names.accepted_at} <= shown


# The engine differs, not the method; llama.cpp's is in `make test`.
@pytest.mark.parametrize("served", PROFILES[:1], indirect=True)
def test_a_second_run_changes_nothing(served: Served, figure: Callable[[str], None]) -> None:
    again = play("site.yml", **served.variables)
    assert again.status == 0
    assert again.changed == 0
    figure(f"{served.profile}, converged run: {again.seconds:.1f} s")
