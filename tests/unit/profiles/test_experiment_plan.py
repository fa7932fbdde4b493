"""The rounds of an experiment before anything is measured: their order, how many there may be, and what they cost."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.budget import CAP_S, limit_s, parse_budget, seconds_in
from drafthouse.profiles.experiment_plan import steps_of_round
from drafthouse.profiles.planned_types import PlannedExperiment
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory

LARGE, SMALL = "rtx6000-qwen-eagle3", "cpu-smollm2-ngram"


def resolved(profile: str = LARGE, price: float | None = None, **experiment: Any) -> Any:
    site = site_of_inventory("workstation" if profile == LARGE else "local")
    if price is not None:
        site |= {"price_per_hour": price, "currency": "EUR"}
    return resolved_profile(profile, site, {"experiment": experiment})


def order(experiment: PlannedExperiment, rounds: int) -> list[str]:
    steps = [step for number in range(1, rounds + 1) for step in steps_of_round(experiment, number)]
    assert [step["number"] for step in steps] == list(range(1, len(steps) + 1))
    return [arm for step in steps for arm in step["arms"]]


def test_arms_that_take_turns_are_in_balance() -> None:
    experiment = resolved()["experiment"]
    places = order(experiment, 4)
    assert "".join(arm[0] for arm in places) == "bssbbssb"
    # What a steady drift adds to each arm: the sum of its places. In turns B,S,B,S it was 16 to 20.
    sums = {arm: sum(place for place, one in enumerate(places) if one == arm) for arm in set(places)}
    assert len(set(sums.values())) == 1
    # Each arm is first as often as last.
    assert [step["arms"].keys() for number in (1, 2) for step in steps_of_round(experiment, number)[::3]]


def test_three_arms_are_in_balance_too() -> None:
    places = order(
        resolved_profile(
            "rtx6000-gptoss-trtllm-eagle3", site_of_inventory("workstation"), {"experiment": {"stock": True}}
        )["experiment"],
        2,
    )
    assert places == [*places[:3], *places[2::-1]]
    assert len(set(places)) == 3


def test_arms_side_by_side_stay_side_by_side() -> None:
    experiment = resolved(SMALL)["experiment"]
    for number in (1, 2, 3):
        (step,) = steps_of_round(experiment, number)
        assert list(step["arms"]) == ["baseline", "speculative"]
        assert step["file"] == f"steps/{number:02d}.json"


def test_a_steps_file_names_its_round_and_arm_as_it_always_did() -> None:
    experiment = resolved()["experiment"]
    found = {(step["round"], *step["arms"]): step["file"] for n in (1, 2, 3) for step in steps_of_round(experiment, n)}
    assert found == {
        (1, "baseline"): "steps/01.json", (1, "speculative"): "steps/02.json",
        (2, "baseline"): "steps/03.json", (2, "speculative"): "steps/04.json",
        (3, "baseline"): "steps/05.json", (3, "speculative"): "steps/06.json",
    }  # fmt: skip


def test_what_is_asked_once_is_in_no_further_round() -> None:
    suites = ["mixed", "articles"]
    experiment = resolved(SMALL, suites=suites, once=["articles"])["experiment"]
    steps = [steps_of_round(experiment, number)[0] for number in (1, 2, 3)]
    assert [step["suites"] for step in steps] == [suites, ["mixed"], ["mixed"]]
    assert not any("without" in step for step in steps)  # the key of a kept result


def test_a_kind_is_asked_once_where_no_verdict_is_about_it() -> None:
    def left_out(**experiment: Any) -> list[list[str]]:
        planned = resolved(SMALL, **experiment)["experiment"]
        return [steps_of_round(planned, number)[0].get("without", []) for number in (1, 2, 3)]

    assert left_out(once=["chat", "code"]) == [[], ["chat", "code"], ["chat", "code"]]
    assert left_out(once=["chat", "code"], kinds=["code"]) == [[], ["chat"], ["chat"]]
    assert left_out(once=["chat"], kinds=[]) == [[], [], []]
    with pytest.raises(DrafthouseError, match=r"a suite of experiment\.suites, or a kind in one of them: mixed, "):
        resolved(SMALL, once=["chatting"])


def test_how_long_may_be_measured_is_not_in_the_key() -> None:
    keys = {measured_key(resolved(**more)) for more in ({}, {"budget": 0}, {"budget": "2h"}, {"most_rounds": 4})}
    assert len(keys) == 1
    assert measured_key(resolved(rounds=3)) not in keys


def test_the_key_is_that_of_results_in_the_former_order() -> None:
    one = resolved()
    former = {
        name: value for name, value in one["experiment"].items() if name not in ("budget", "most_rounds", "turns")
    }
    former["steps"] = [
        {"round": r, "suites": ["mixed"], "arms": {arm: 8000}, "number": n, "file": f"steps/{n:02d}.json"}
        for n, (r, arm) in enumerate([(1, "baseline"), (1, "speculative"), (2, "baseline"), (2, "speculative")], 1)
    ]  # fmt: skip
    for step, planned in zip(former["steps"], one["experiment"]["steps"], strict=True):
        step["suites"] = planned["suites"]
    parts = {part: one[part] for part in ("hardware", "engine", "target", "draft", "method", "suites", "arms")}
    parts["hardware"] = {name: value for name, value in one["hardware"].items() if name != "vast_names"}
    later = ("speculators", "layout")  # said of heads since
    parts["draft"] = {name: value for name, value in one["draft"].items() if name not in later}
    text = json.dumps([{**parts, "experiment": former}], sort_keys=True, default=str)
    assert measured_key(one) == hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("30m", 1800), ("90s", 90), ("1800", 1800), ("0", 0), ("", None), ("soon", None), ("3x", None)],
)
def test_times_as_people_write_them(text: str, seconds: int | None) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    ("value", "first_s", "limit"),
    [
        ("3x", 300, 900), ("3x", 7200, CAP_S), ("1.5 x", 100, 150), ("45m", 10, 2700), ("2h", 10, 7200),
        (600, 1, 600), (0, 300, 0), ("none", 300, 0), ("0x", 300, 0),
    ],
)  # fmt: skip
def test_a_budget_is_a_factor_that_is_capped_or_a_time_that_is_not(value: object, first_s: float, limit: float) -> None:
    budget = parse_budget(value)
    assert limit_s(budget.as_dict(), first_s) == limit
    assert budget.nothing is (limit == 0)


@pytest.mark.parametrize("value", ["much", True, [3], "-3", "x"])
def test_what_is_no_budget_is_said_with_its_place(value: object) -> None:
    with pytest.raises(DrafthouseError) as error:
        resolved(budget=value)
    (problem,) = error.value.problems
    assert problem.where.endswith("experiment.budget")
    assert "3x" in problem.needed


def test_fewer_rounds_at_most_than_to_begin_with() -> None:
    with pytest.raises(DrafthouseError, match="3 or more"):
        resolved(rounds=3, most_rounds=2)


@pytest.mark.parametrize(
    ("more", "most"),
    [({}, 8), ({"rounds": 10}, 10), ({"most_rounds": 4}, 4), ({"budget": 0}, 2), ({"budget": "none", "rounds": 3}, 3)],
)
def test_how_many_rounds_there_are_at_most(more: dict[str, Any], most: int) -> None:
    experiment = resolved(**more)["experiment"]
    assert experiment["most_rounds"] == most
    assert max(step["round"] for step in experiment["steps"]) == more.get("rounds", 2)


def test_the_plan_says_what_the_rounds_cost_before_they_do() -> None:
    text = plan_text(resolved(price=2.5))
    assert "2 at first: 4 starts" in text
    assert "8 in all at most: 3 times their cost, at most 60 min (experiment.budget)" in text
    assert "at 2.50 EUR an hour: about " in text
    assert "further rounds 2.50 EUR at most" in text
    text = plan_text(resolved(price=2.5, budget="90m"))
    assert "8 in all at most: 90 min (experiment.budget)" in text
    assert "further rounds 3.75 EUR at most" in text
    text = plan_text(resolved(price=2.5, budget=0))
    assert "and no more than these 2" in text
    assert "further rounds" not in text
    assert "an hour" not in plan_text(resolved())
