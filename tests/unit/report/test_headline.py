"""The headline: a dozen words, and with what stands below it the whole sentence."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.report.data.build import build_report
from drafthouse.report.headline import below, headline_of
from tests.support.builders import make_pair, make_resolved


def broken() -> tuple[Any, Any]:
    base, spec = make_pair()
    base["requests"][0].update(status="failed", error="HTTP 500", tpot_ms=None)
    return base, spec


@pytest.mark.parametrize(
    ("pair", "begins"),
    [
        (make_pair(), "pays: "),
        (make_pair({"copy-edit": 0.5}), "does not pay: slower, "),
        (make_pair({"copy-edit": 1.0}), "cannot say: too few rounds"),
        (broken(), "invalid: the numbers prove nothing"),
    ],
)
def test_it_is_a_dozen_words_and_the_rest_is_below(pair: tuple[Any, Any], begins: str) -> None:
    verdict = build_report(*pair, make_resolved())["verdict"]
    headline, rest = headline_of(verdict), below(verdict, load=True)
    assert headline.startswith(begins)
    assert len(headline.split()) <= 12
    assert rest
    assert rest in verdict["sentence"]
    if verdict["word"] != "invalid":
        assert headline in verdict["sentence"]
        assert headline not in rest


def test_marks_stand_before_the_word() -> None:
    verdict = build_report(*make_pair(), make_resolved(synthetic="a made draft"))["verdict"]
    assert headline_of(verdict).startswith("synthetic, pays: ")


def test_a_report_of_an_earlier_version_has_its_sentence() -> None:
    verdict: Any = {**build_report(*make_pair(), make_resolved())["verdict"]}
    del verdict["headline"]
    assert headline_of(verdict) == verdict["sentence"]
    assert below(verdict) == ""
