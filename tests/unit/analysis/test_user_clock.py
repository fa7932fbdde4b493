"""What a user waits for beside the time per token: faster tokens that come later do not pay."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.analysis.user_clock import user_clock
from drafthouse.analysis.words import THRESHOLD
from drafthouse.core.format import TIMES
from tests.support.builders import NOTHING, make_pair, make_resolved
from tests.support.loosely import judge

Data = Any


def clocked(ttft: tuple[float, float], tpot: tuple[float, float], tokens: int, told: int = 0) -> tuple[Data, Data]:
    """A pair of these times (baseline, speculative) in ms, whose answers have so many tokens of ``told`` (0: all)."""
    pair = make_pair({"copy-edit": 1.0}, noise=0.0)
    for result, first_ms, each_ms in zip(pair, ttft, tpot, strict=True):
        for request in result["requests"]:
            request.update(ttft_ms=first_ms, ttfat_ms=first_ms, tpot_ms=each_ms, output_tokens=tokens, chunks=tokens)
            request["e2el_ms"] = first_ms + (tokens - 1) * each_ms
            if told:
                request["max_tokens"] = told
    return pair


def test_faster_per_token_and_slower_to_answer_does_not_pay() -> None:
    # 33 + 82 * 13.84 = 1,168 ms, and 414 + 82 * 10.805 = 1,300 ms.
    verdict = judge(*clocked((33.0, 414.0), (13.84, 10.805), 83), make_resolved())
    assert verdict["speedup"]["low"] > THRESHOLD
    assert verdict["word"] == "does not pay"
    assert not verdict["wrong_output"]
    assert verdict["sentence"].startswith(
        f"does not pay: faster on most prompts, slower over all: 0.90{TIMES}; 1.28{TIMES} "
    )
    assert "TTFT 414 ms (baseline 33.0), end to end at 83 tokens 1,300 ms (baseline 1,168)" in verdict["sentence"]
    assert verdict["seconds"]["ratio"] == pytest.approx(1168 / 1300, rel=1e-3)
    assert "the first token comes later: 414 ms for 33.0" in verdict["warnings"]


def test_a_late_first_token_that_the_answer_makes_up_for_pays_and_is_warned_about() -> None:
    verdict = judge(*clocked((33.0, 414.0), (20.0, 10.0), 160), make_resolved())
    assert verdict["word"] == "pays"
    assert "; TTFT 414 ms (baseline 33.0), end to end at 160 tokens 2,004 ms (baseline 3,213)" in verdict["sentence"]
    assert "the first token comes later: 414 ms for 33.0" in verdict["warnings"]


def test_a_gain_that_the_wait_for_the_prompt_swallows_does_not_pay() -> None:
    verdict = judge(*clocked((4000.0, 4000.0), (10.0, 8.0), 32), make_resolved())
    assert verdict["word"] == "cannot say"
    assert (
        f"most prompts are faster, but the seconds of all answers together (1.01{TIMES}) are not surely less"
        in verdict["said"]
    )


def test_it_is_the_declared_length_that_counts() -> None:
    # Answers end after 20 tokens in both arms, and 400 are what the profile's work may ask for.
    short = judge(*clocked((33.0, 414.0), (14.0, 10.0), 20), make_resolved())
    full = judge(*clocked((33.0, 414.0), (14.0, 10.0), 20, 400), make_resolved())
    assert (short["word"], full["word"]) == ("does not pay", "cannot say")  # a gain below 1.60 needs three rounds
    assert full["seconds"]["low"] > 1.1
    assert full["user_clock"]["output_tokens"] == 400
    assert full["user_clock"]["e2el_ms"]["baseline"] == pytest.approx(33 + 399 * 14)


def test_answers_of_another_length_are_set_to_the_same() -> None:
    base, spec = clocked((40.0, 40.0), (14.0, 7.0), 160, 160)
    for request in spec["requests"]:
        request.update(output_tokens=40, e2el_ms=40 + 39 * 7.0)
    clock: Any = user_clock({"baseline": base, "speculative": spec}, ["copy-edit"])
    assert clock["e2el_ms"]["speculative"] == pytest.approx(40 + 159 * 7.0)
    assert clock["e2el_ms"]["speedup"]["gain"] == pytest.approx((40 + 159 * 14) / (40 + 159 * 7))


def test_the_first_answer_token_stands_there_where_a_model_thinks_first() -> None:
    base, spec = clocked((40.0, 40.0), (14.0, 7.0), 160)
    for result, ms in ((base, 900.0), (spec, 450.0)):
        for request in result["requests"]:
            request["ttfat_ms"] = ms
    said = judge(base, spec, make_resolved())["said"]
    assert "TTFT 40.0 ms (baseline 40.0), first answer token 450 ms (baseline 900), end to end" in said


def test_nothing_measured_has_no_clock() -> None:
    clock = user_clock({"baseline": NOTHING, "speculative": NOTHING}, ["chat"])
    assert clock["output_tokens"] is None
    assert clock["e2el_ms"] == {"baseline": None, "speculative": None, "speedup": None}
