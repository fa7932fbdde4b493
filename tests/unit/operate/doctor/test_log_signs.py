"""The sign of a known issue in an engine's log: found on the box, told by the doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.operate.checks.finding import FAIL, OK, WARN, Finding
from drafthouse.operate.checks.registry import CHECKS
from drafthouse.operate.doctor.log_signs import log_signs
from drafthouse.serving.runtimes import runtime_of
from tests.support.doctors import asked, wanted

TRT = "rtx6000-gptoss-trtllm-eagle3"
ROW = "trtllm-gptoss-eagle3-tools"
ILLEGAL = "CUDA error: an illegal memory access|Xid"
LOG = f"""\
(APIServer) a user asked: what is "{"x" * 300}"?
ERROR CUDA error: an illegal memory access was encountered
"""


def issue(**changes: Any) -> Any:
    row = next(one for one in wanted(TRT)["known_issues"] if one["id"] == ROW)
    return {**row, "signature": ILLEGAL, **changes}


def told(resolved: Any, signs: dict[str, str], *, measured: bool = False) -> list[tuple[str, str]]:
    facts: Any = {"measured": measured, "log_signs": signs}
    (check,) = (one for one in CHECKS if one.id == "known-issues")
    assert check.after and set(facts) == set(check.reads)
    answer = check.after(resolved, facts)
    return [(one.status, one.found) for one in ([answer] if isinstance(answer, Finding) else answer or [])]


# --- on the box -------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/speculative.log").write_text(LOG)
    return tmp_path


def signs(home: Path, signatures: dict[str, str], *arms: str) -> dict[str, str]:
    return log_signs(signatures, runtime_of("process", home), arms)


def test_only_what_the_signature_matches_is_told(home: Path) -> None:
    found = signs(home, {"a-row": ILLEGAL, "another": "num_accepted_tokens_event"}, "baseline", "speculative")
    assert found == {"a-row": "CUDA error: an illegal memory access"}


def test_a_log_that_is_not_there_has_no_sign(home: Path) -> None:
    assert signs(home, {"a-row": ILLEGAL}, "baseline") == {}
    assert signs(home, {}, "speculative") == {}


def test_the_last_sign_counts_and_a_long_one_is_cut(home: Path) -> None:
    (home / "logs/speculative.log").write_text(f"step 1 {'a' * 500}\nstep 2 {'b' * 500}\n")
    (sign,) = signs(home, {"a-row": "step .*"}, "speculative").values()
    assert sign.startswith("step 2 b")
    assert len(sign) == 160


def test_the_box_is_asked_for_the_signs_of_the_profile_alone() -> None:
    resolved = {**wanted(TRT), "known_issues": [issue(), issue(id="without", signature=None)]}
    assert asked(resolved)["signatures"] == {ROW: ILLEGAL}


# --- told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "status"), [("wrong", FAIL), ("crash", FAIL), ("oom", WARN), ("slow", WARN)])
def test_the_doctor_names_the_row_whose_sign_stands_in_the_log(effect: str, status: str) -> None:
    resolved = {**wanted(TRT), "known_issues": [issue(effect=effect)]}
    ((found, said),) = told(resolved, {ROW: "CUDA error: an illegal memory access"})
    assert found == status
    assert said.startswith(f"{ROW}: ")
    assert "an illegal memory access" in said


def test_no_sign_is_well_and_nothing_to_look_for_is_nothing() -> None:
    resolved = {**wanted(TRT), "known_issues": [issue()]}
    assert [status for status, _ in told(resolved, {})] == [OK]
    assert told({**resolved, "known_issues": [issue(signature=None)]}, {}) == []


def test_while_something_is_measured_nothing_is_said_of_a_log_that_was_not_read() -> None:
    resolved = {**wanted(TRT), "known_issues": [issue()]}
    assert "not asked" in told(resolved, {}, measured=True)[0][1]
