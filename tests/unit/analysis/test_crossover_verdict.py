"""The ladder beside the A/B: where both are of the same work and load, one of them has the word."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.format import DASH, TIMES
from drafthouse.report.data.build import build_report
from tests.support.builders import make_pair, make_resolved
from tests.support.ladders import KIND, known_ladder, make_ladder
from tests.support.loosely import agreed, fill

FALLING: dict[float, float] = {1: 1.8, 2: 1.6, 4: 1.4, 8: 1.26, 16: 0.8}
QUICK = 2000


def one(gains: dict[float, float], **fields: Any) -> Any:
    return fill(known_ladder(gains, **fields), QUICK)[KIND]


def ab(word: str, median: float, **scope: Any) -> Any:
    """What `judge` says, as far as it concerns a ladder."""
    speedup = {"gain": median, "low": median - 0.1, "high": median + 0.1, "n": 12, "confidence": 0.95, "reach": 0.95}
    return {"word": word, "speedup": speedup, "scope": {"kinds": [KIND], "concurrency": 1, **scope}}


def beside(verdict: Any, gains: dict[float, float], **fields: Any) -> Any:
    """The crossover of a known ladder beside the A/B's verdict."""
    found = agreed(known_ladder(gains, **fields), verdict)
    assert found
    return dict(found["crossover"][KIND])


def test_where_the_ab_says_that_it_pays_alone_the_ladder_does_not_say_that_it_does_not() -> None:
    gains: dict[float, float] = {1: 1.05, 2: 1.0, 4: 0.7}
    assert one(gains)["word"] == "does not pay"
    found = beside(ab("pays", 1.46), gains)
    assert (found["word"], found["quoted"], found["levels"][0]["word"]) == ("pays", 1, "pays")
    assert 1 < found["pays_until"] < 2
    assert found["sentence"].startswith(f"pays 1.46{TIMES} (1.36{DASH}1.56) for one user, until about 1.9 ")
    assert f"for one user the A/B decides, though the ladder alone shows 1.05{TIMES}" in found["sentence"]


@pytest.mark.parametrize("word", ["does not pay", "cannot say"])
def test_where_the_ab_does_not_say_that_it_pays_the_ladder_claims_higher_levels_alone(word: str) -> None:
    found = beside(ab(word, 1.02), {1: 1.2, 2: 1.5, 4: 1.4, 8: 0.7})
    assert (found["word"], found["quoted"], found["levels"][0]["word"]) == ("pays", 2, "unclear")
    assert 1 < found["pays_from"] < 2
    assert found["sentence"].startswith(f"pays 1.50{TIMES} ")
    assert found["sentence"].endswith(f"; for one user the A/B decides: {word}, 1.02{TIMES} (0.92{DASH}1.12)")
    alone = beside(ab(word, 1.02), {1: 1.2, 2: 1.0, 4: 0.7})
    assert alone["word"] == "does not pay"
    assert "for one user the A/B decides" in alone["sentence"]


def test_in_the_middle_of_a_ladder_the_abs_word_is_a_gap() -> None:
    found = beside(ab("does not pay", 0.95, concurrency=4), {1: 1.8, 2: 1.6, 4: 1.2, 8: 1.2, 16: 0.7})
    assert (found["word"], found["quoted"], found["gaps"]) == ("pays", 1, [4])


@pytest.mark.parametrize(
    ("verdict", "fields"),
    [
        (ab("pays", 1.5), {}),
        (ab("does not pay", 1.0, concurrency=3), {}),
        (ab("does not pay", 1.0, kinds=[KIND, "chat"]), {}),
        (ab("does not pay", 1.0, kinds=["chat"]), {}),
        (ab("invalid", 1.0), {}),
        (ab("does not pay", 1.0) | {"wrong_output": True}, {}),
        (ab("invalid", 1.0) | {"speedup": None}, {}),
        (ab("does not pay", 1.0), {"load": "open", "unit": "requests a second"}),
    ],
)
def test_the_ladder_stays_as_it_is_where_both_agree_or_are_of_something_else(verdict: Any, fields: Any) -> None:
    assert beside(verdict, FALLING, **fields) == fill(known_ladder(FALLING, **fields))[KIND]


def test_no_ladder_and_one_of_nothing_stay_what_they_are() -> None:
    assert agreed(None, ab("pays", 1.5)) is None
    empty = make_ladder([1], [])
    assert agreed(empty, ab("pays", 1.5)) == empty | {"crossover": fill(empty)}


def test_what_an_earlier_rule_said_of_a_ladder_is_not_taken_over() -> None:
    ladder = known_ladder({1: 1.05, 2: 1.0, 4: 0.7})
    said = {KIND: one({1: 1.8, 2: 1.6, 4: 1.4})}
    found = agreed(ladder | {"crossover": said}, ab("does not pay", 1.05))
    assert found
    assert found["crossover"] == fill(ladder)


@pytest.mark.parametrize(("speedup", "word"), [(1.5, "pays"), (1.0, "does not pay")])
@pytest.mark.parametrize("alone", [1.05, 1.4])
def test_a_report_does_not_say_both(speedup: float, word: str, alone: float) -> None:
    ladder: Any = known_ladder({1: alone, 2: 1.0, 4: 0.7})
    pair = make_pair({KIND: speedup}, prompts=12, rounds=3)
    report: Any = build_report(*pair, make_resolved(kinds=[KIND]), ladder=ladder)
    assert report["verdict"]["word"] == word
    (kind,) = report["load"]["kinds"]
    assert (kind["word"] == "pays") == (word == "pays")
    assert (report["load"]["rows"][0]["word"] == "pays") == (word == "pays")
    assert ("the A/B decides" in report["verdict"]["sentence"]) == ((speedup > 1) != (alone > 1.1))
