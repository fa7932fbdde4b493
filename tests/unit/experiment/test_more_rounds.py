"""Whether another round follows: budget, deadline and most rounds against what the evidence asks for."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.experiment.more_rounds import costs_by_round, decide, interim_text
from drafthouse.profiles.budget import parse_budget

DOUBT = "too few prompts: the interval is in doubt"
SETTLED: Any = {"word": "does not pay", "sentence": "does not pay: no clear difference", "next_round": None}
JUDGED: Any = SETTLED | {"next_round": {"why": DOUBT, "fresh": "many"}}


def experiment(budget: object = "3x", most: int = 8, rounds: int = 2) -> Any:
    return {"rounds": rounds, "most_rounds": most, "budget": parse_budget(budget).as_dict()}


def step(number: int, duration_s: float, **more: float) -> Any:
    return {"settings": {"first_round": number}, "duration_s": duration_s, **more}


def test_a_round_costs_its_starts_too_and_an_earlier_versions_its_measuring() -> None:
    steps = [step(1, 50, cost_s=80), step(1, 40, cost_s=60), step(2, 45), step(2, 35)]
    assert costs_by_round(steps) == {1: 140, 2: 80}


def test_another_round_follows_while_the_evidence_asks_for_it() -> None:
    note = decide(experiment(), {1: 120.0, 2: 100.0}, JUDGED)
    assert (note["done"], note["next"], note["why"]) == (2, 3, DOUBT)
    # The budget is of what the rounds to begin with took; the next round takes as long as the last one.
    assert (note["first_s"], note["spent_s"], note["next_s"], note["limit_s"]) == (220, 0, 100, 660)
    assert (note["word"], note["sentence"]) == (JUDGED["word"], JUDGED["sentence"])
    assert note["asks"] == 20


def test_none_follows_where_the_evidence_is_enough() -> None:
    note = decide(experiment(), {1: 120.0, 2: 100.0}, SETTLED)
    assert (note["next"], note["why"]) == (None, "the evidence needs no further round")


@pytest.mark.parametrize(
    ("budget", "most", "costs", "left_s", "why"),
    [
        ("3x", 8, {1: 100, 2: 100, **dict.fromkeys(range(3, 9), 100)}, None, "experiment.most_rounds allows only 8"),
        ("2x", 8, {1: 100, 2: 100, 3: 100, 4: 100, 5: 100, 6: 100}, None, "takes about 2 min, and 0 s of the budget"),
        ("150s", 8, {1: 100, 2: 100, 3: 100}, None, "takes about 2 min, and 50 s of the budget is left"),
        ("0", 2, {1: 100, 2: 100}, None, "no further round is allowed (experiment.budget)"),
        ("3x", 8, {1: 1900, 2: 1900, 3: 1900}, None, "and 28 min of the budget is left"),
        ("3x", 8, {1: 100, 2: 100}, 90.0, "and the box ends in 90 s"),
    ],
)  # fmt: skip
def test_what_forbids_a_round_is_said(
    budget: str, most: int, costs: dict[int, float], left_s: float | None, why: str
) -> None:
    note = decide(experiment(budget, most), costs, JUDGED, left_s)
    assert note["next"] is None
    assert why in (note["why"] or "")
    assert note["wanted"] == DOUBT


def test_the_whole_of_a_factor_can_be_spent() -> None:
    costs = {1: 100.0, 2: 100.0}
    while (note := decide(experiment(), costs, JUDGED))["next"]:
        costs[note["next"]] = 100.0
    assert max(costs) == 8


def test_what_is_bought_is_said_with_its_price_before_it_is() -> None:
    note = decide(experiment("20m"), {1: 120.0, 2: 360.0}, JUDGED)
    text = interim_text(note, 8, 3.0, "EUR")
    assert "interim verdict after 2 rounds: does not pay: no clear difference" in text
    assert f"next: round 3 of at most 8, with 20 fresh prompts: {DOUBT}" in text
    assert "about 6 min (0.30 EUR); the budget for further rounds has about 20 min (1.00 EUR) left" in text
    assert "Ctrl-C keeps this verdict" in text
    assert "(" not in interim_text(note, 8).splitlines()[2]


def test_of_the_last_round_only_an_unmet_wish_is_said() -> None:
    assert interim_text(decide(experiment(), {1: 9.0, 2: 9.0}, SETTLED), 8) == ""
    text = interim_text(decide(experiment("none", 2), {1: 9.0, 2: 9.0}, JUDGED), 2)
    assert text == f"no more after 2 rounds (no further round is allowed (experiment.budget)), although {DOUBT}"
