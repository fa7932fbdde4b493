"""A K that is too deep and a head that is dead, on both sides of each bound; and where a reader sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.acceptance_findings import (
    DEAD,
    DEAD_LENGTH,
    LEAST_DRAFTS,
    NOTHING_ACCEPTED,
    TOO_DEEP,
    acceptance_findings,
)
from drafthouse.report.data.build import build_report
from drafthouse.report.terminal import verdict_table
from drafthouse.report.writer import render_html, render_markdown
from tests.support.builders import make_pair, make_resolved

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"


def counted(rates: list[float], drafts: int | None = 1000, length: float | None = None) -> Any:
    """The counters of an arm whose drafts were accepted so often at each position."""
    return {
        "spec_decode_num_drafts": drafts,
        "spec_decode_acceptance_length": 1 + sum(rates) if length is None else length,
        "spec_decode_per_position_acceptance_rates": rates,
    }


def resolved(kind: str = "head", tokens: int = 4) -> Any:
    whole = make_resolved()
    return {**whole, "method": {**whole["method"], "kind": kind, "num_speculative_tokens": tokens}}


def codes(result: Any, kind: str = "head") -> list[str]:
    return [one["code"] for one in acceptance_findings(result, resolved(kind))]


# --- K too deep -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ([0.7, 0.4, 0.2, 0.1], []),
        ([0.7, 0.4, 0.2, 0.0], [TOO_DEEP]),
        ([0.7, 0.4, 0.2, NOTHING_ACCEPTED], [TOO_DEEP]),
        ([0.7, 0.4, 0.2, NOTHING_ACCEPTED + 1e-6], []),
        ([0.7, 0.0, 0.0, 0.0], [TOO_DEEP]),
        ([0.7], []),
        ([], []),
    ],
)
def test_a_position_of_which_nothing_is_accepted(rates: list[float], found: list[str]) -> None:
    assert codes(counted(rates, length=1.7)) == found


@pytest.mark.parametrize(("rates", "right"), [([0.7, 0.4, 0.0, 0.0], 2), ([0.7, 0.0, 0.0, 0.0], 1)])
def test_it_names_the_k_that_would_do(rates: list[float], right: int) -> None:
    (found,) = acceptance_findings(counted(rates), resolved())
    assert found["do"].startswith(f"set num_speculative_tokens: {right}")
    assert f"position {right + 1}" in found["said"]
    assert "K=4" in found["said"]


@pytest.mark.parametrize(("drafts", "found"), [(LEAST_DRAFTS - 1, []), (LEAST_DRAFTS, [TOO_DEEP]), (None, [])])
def test_a_few_drafts_say_nothing_of_a_position(drafts: int | None, found: list[str]) -> None:
    assert codes(counted([0.7, 0.0], drafts)) == found


# --- dead head --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "found"), [(1.0, [DEAD]), (DEAD_LENGTH, [DEAD]), (DEAD_LENGTH + 1e-6, [])])
def test_a_step_that_gives_one_token(length: float, found: list[str]) -> None:
    assert codes(counted([length - 1], length=length)) == found


@pytest.mark.parametrize(("drafts", "found"), [(LEAST_DRAFTS - 1, []), (LEAST_DRAFTS, [DEAD]), (None, [DEAD])])
def test_a_few_drafts_say_nothing_of_a_head(drafts: int | None, found: list[str]) -> None:
    # Without a count of drafts the length came from answers, each of which is many steps.
    assert codes(counted([0.0, 0.0], drafts, length=1.0)) == found


def test_a_dead_head_is_said_once_and_with_its_causes() -> None:
    (found,) = acceptance_findings(counted([0.0, 0.0, 0.0]), resolved())
    assert found["code"] == DEAD
    assert "usual causes: weights" in found["do"]


# --- what neither is said of ------------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [[0.7, 0.0], [0.0, 0.0]])
def test_a_lookup_drafts_no_further_than_what_it_found(rates: list[float]) -> None:
    assert codes(counted(rates), "lookup") == []
    assert codes(counted(rates), "model") != []


def test_counters_that_tell_nothing_say_nothing() -> None:
    nothing: Any = {}
    assert codes(nothing) == []
    assert codes({**counted([0.5, 0.0]), "spec_decode_per_position_acceptance_rates": None}) == []


# --- where it is seen -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "code"), [([0.7, 0.4, 0.0, 0.0], TOO_DEEP), ([0.0, 0.0, 0.0, 0.0], DEAD), ([0.7, 0.4, 0.2, 0.1], None)]
)
def test_a_report_says_it_in_every_form(rates: list[float], code: str | None) -> None:
    base, spec = make_pair()
    spec |= counted(rates)
    report = build_report(base, spec, resolved())
    assert [one["code"] for one in report["verdict"]["acceptance_findings"]] == ([code] if code else [])
    forms = [verdict_table(report), render_html(report, TEMPLATES), render_markdown(report, TEMPLATES)]
    for known in (TOO_DEEP, DEAD):
        assert [f"({known})" in form for form in forms] == [known == code] * len(forms)
