"""The helper by which lanes with neighbours judge a verdict: it must be able to fail."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from tests.support.builders import make_pair, make_resolved
from tests.support.verdicts import consistent

# Faster per token, and all answers together take longer.
SLOWER = {"ratio": 0.9, "low": 0.85, "high": 0.95, "by_temperature": {"0": 0.9}}


@pytest.fixture(scope="module")
def report() -> Any:
    return {"verdict": judge(*make_pair({"copy-edit": 2.0}), make_resolved())}


def test_words_that_their_numbers_bear_out(report: Any) -> None:
    assert consistent(report) == "pays"
    assert consistent({"verdict": judge(*make_pair({"copy-edit": 0.9}), make_resolved())}) == "does not pay"
    said = "too noisy: the baseline against itself gives 2.25x"
    noisy = {**report["verdict"], "word": "cannot say", "said": said, "sentence": f"cannot say: {said}"}
    noisy["next_round"] = {"why": said, "fresh": "few"}
    assert consistent({"verdict": noisy}) == "cannot say"
    slow = {"seconds": SLOWER, "word": "does not pay", "sentence": "does not pay: slower over all"}
    waits = {**report["verdict"], **slow}
    assert consistent({"verdict": waits}) == "does not pay"


@pytest.mark.parametrize(
    "changed",
    [
        {"word": "invalid"},
        {"word": "does not pay", "sentence": "does not pay: ..."},
        {"word": "cannot say", "sentence": "cannot say: ..."},
        # The demo beside other work: 2.10 (1.25-4.62) with the baseline against itself at 2.25 (0.72-3.04).
        {
            "speedup": {"gain": 2.1, "low": 1.25, "high": 4.62, "n": 6},
            "control": {"gain": 2.25, "low": 0.72, "high": 3.04, "n": 6},
        },
        {"wrong_output": True},
        {"seconds": SLOWER},
    ],
)
def test_words_that_their_numbers_speak_against(report: Any, changed: Any) -> None:
    other = copy.deepcopy(report)
    other["verdict"] |= changed
    with pytest.raises(AssertionError):
        consistent(other)
