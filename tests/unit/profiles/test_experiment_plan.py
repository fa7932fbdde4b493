"""The rounds of an experiment before anything is measured: their order, how many there may be, and what they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from drafthouse.bench.groups import StepOptions, plan_groups
from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.plan_text import plan_text
from drafthouse.experiment.verdict_cost import minutes_of
from drafthouse.profiles.budget import CAP_S, limit_s, parse_budget, seconds_in
from drafthouse.profiles.experiment_plan import asking_of, steps_of_round
from drafthouse.profiles.planned_types import PlannedExperiment
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.prompt_plan import Asking, fresh_counts, prompt_order, round_prompts

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


def asked(planned: Any, number: int, fresh: Sequence[int] = ()) -> list[Any]:
    """The requests of a round's first step."""
    step = steps_of_round(planned["experiment"], number, fresh)[0]
    options = StepOptions(
        first_round=number,
        temperatures=tuple(planned["experiment"]["temperatures"]),
        asking=asking_of(planned["experiment"], step),
    )
    groups = plan_groups([planned["suites"][name] for name in step["suites"]], options)
    return [ask for group in groups for ask in group.requests]


def test_a_round_asks_anchors_again_and_fresh_prompts_once() -> None:
    planned = resolved()
    rounds = [asked(planned, number) for number in (1, 2, 3)]
    timed = [
        [(ask.kind, ask.prompt_id, ask.temperature) for ask in own if ask.kind in ("chat", "code")] for own in rounds
    ]
    anchors = set(timed[0]) & set(timed[1]) & set(timed[2])
    assert len(anchors) == 6
    fresh = [set(own) - anchors for own in timed]
    assert not fresh[0] & fresh[1]
    # Kinds and temperatures are as equal as the numbers allow.
    assert Counter(kind for kind, _, _ in anchors) == {"chat": 3, "code": 3}
    assert sorted(Counter((kind, t) for kind, _, t in anchors).values()) == [1, 1, 2, 2]
    # The other kinds, gates and article prompts are asked in the first round alone, and before what is timed.
    kinds = [ask.kind for ask in rounds[0]]
    assert {"json", "vacation", "creative"} <= set(kinds)
    assert set(kinds[-len(timed[0]) :]) == {"chat", "code"}
    assert {ask.kind for ask in rounds[1]} == {"chat", "code"}


def test_both_arms_are_asked_alike_in_one_order() -> None:
    experiment = resolved()["experiment"]
    for number in (1, 2, 3):
        asks = [step["prompts"] for step in steps_of_round(experiment, number, [10, 10, 20])]
        assert asks[0] == asks[1]
    assert steps_of_round(experiment, 3, [10, 10, 20])[0]["prompts"]["fresh"] == [10, 10, 20]
    assert steps_of_round(experiment, 3)[0]["prompts"]["fresh"] == [10, 10, 4]


def test_prompts_that_are_too_few_are_shared_by_the_first_rounds() -> None:
    assert fresh_counts(100, [10, 10, 20, 4]) == [10, 10, 20, 4]
    assert fresh_counts(10, [10, 10, 20]) == [5, 5, 0]
    assert fresh_counts(25, [10, 10, 20]) == [10, 10, 5]
    assert fresh_counts(0, [10, 10]) == [0, 0]


def test_what_one_round_asks_of_a_large_pool_is_in_balance() -> None:
    order = prompt_order({"chat": 60, "code": 60}, dict.fromkeys(("chat", "code"), (0.0, 0.6)))
    asking = Asking(("chat", "code"), 6, (10, 10, 20, 4, 20, 20), 1)
    seen: Counter[Any] = Counter()
    for number in range(1, 7):
        own = round_prompts(order, asking, number)
        seen.update((prompt.kind, prompt.temperature) for prompt in own)
        # Anchors lie at even distances.
        places = [own.index(anchor) for anchor in order[:6]]
        gaps = [after - before for before, after in pairwise(places)]
        assert max(gaps) - min(gaps) <= 1
    assert max(seen.values()) - min(seen.values()) <= 7


def test_the_demo_asks_40_answers() -> None:
    planned = resolved(SMALL)
    planned["suites"]["mixed"]["kinds"]["copy-edit"]["prompts"] *= 2  # twelve or more are there
    for place, prompt in enumerate(planned["suites"]["mixed"]["kinds"]["copy-edit"]["prompts"]):
        planned["suites"]["mixed"]["kinds"]["copy-edit"]["prompts"][place] = {**prompt, "id": f"p{place}"}
    assert 2 * (len(asked(planned, 1)) + len(asked(planned, 2))) == 40


def test_an_articles_prompt_is_asked_alone_and_gates_several_at_once() -> None:
    planned = resolved(concurrency=4)
    step = planned["experiment"]["steps"][0]
    options = StepOptions(concurrency=4, asking=asking_of(planned["experiment"], step))
    groups = plan_groups([planned["suites"][name] for name in step["suites"]], options)
    at_once = {group.key: group.concurrency for group in groups}
    assert at_once["vacation"] == 1
    assert at_once["json"] == 8
    assert at_once["chat"] == at_once["creative"] == 4
    # Gates and the article's prompt come before the first prompt that is timed for the verdict.
    keys = [group.key for group in groups]
    assert max(keys.index(name) for name in ("vacation", "json")) < keys.index("chat")
    # `bench` asks as many at once as it is told to.
    assert {group.concurrency for group in plan_groups([planned["suites"]["articles"]], StepOptions(4))} == {4}


def test_no_more_gates_are_asked_at_once_than_the_server_takes() -> None:
    assert resolved()["experiment"]["gates_at_once"] == 8
    few = resolved("rtx6000-qwen36-mtp")
    assert few["arms"]["baseline"]["fit"]["sequences"] == few["experiment"]["gates_at_once"] == 4


@pytest.mark.parametrize(("name", "clear", "small"), [(LARGE, 9.0, 14.0), ("h100-llama33-draft3b", 5.0, 8.0)])
def test_a_verdict_costs_minutes_by_the_plan(name: str, clear: float, small: float) -> None:
    planned = resolved_profile(name, site_of_inventory("workstation"))
    minutes = minutes_of(planned)
    assert minutes["answers"] <= clear
    assert minutes["answers"] < minutes["small_gain"]["answers"] <= small
    assert minutes["worst"] > minutes["small_gain"]["answers"] + minutes["small_gain"]["starts"]


def test_the_page_on_measuring_has_the_minutes_of_today() -> None:
    page = " ".join((ROOT / "docs" / "measuring.md").read_text("utf-8").split())
    rows = re.findall(r"\| `([a-z0-9-]+)` \| ([\d.]+) \+ (\d+) \| ([\d.]+) \+ (\d+) \| (\d+) \|", page)
    assert len(rows) == 2
    for profile, *quoted in rows:
        now = minutes_of(resolved_profile(profile, site_of_inventory("workstation")))
        today = [now["answers"], now["starts"], *now["small_gain"].values(), round(now["worst"])]
        assert list(map(float, quoted)) == today, profile


def test_how_long_may_be_measured_is_not_in_the_key() -> None:
    keys = {measured_key(resolved(**more)) for more in ({}, {"budget": 0}, {"budget": "2h"}, {"most_rounds": 4})}
    assert len(keys) == 1
    assert measured_key(resolved(rounds=3)) not in keys


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
    [({}, 6), ({"rounds": 10}, 10), ({"most_rounds": 4}, 4), ({"budget": 0}, 2), ({"budget": "none", "rounds": 3}, 3)],
)
def test_how_many_rounds_there_are_at_most(more: dict[str, Any], most: int) -> None:
    experiment = resolved(**more)["experiment"]
    assert experiment["most_rounds"] == most
    assert max(step["round"] for step in experiment["steps"]) == more.get("rounds", 2)


def test_the_plan_says_what_the_rounds_cost_before_they_do() -> None:
    text = plan_text(resolved(price=2.5))
    assert "2 at first: 4 starts" in text
    assert "6 in all at most: 3 times their cost, at most 60 min (experiment.budget)" in text
    assert "at 2.50 EUR an hour: about " in text
    assert "verdict    at a gain of 1.3 about " in text
    text = plan_text(resolved(price=2.5, budget="90m"))
    assert "6 in all at most: 90 min (experiment.budget)" in text
    text = plan_text(resolved(price=2.5, budget=0))
    assert "and no more than these 2" in text
    assert "an hour" not in plan_text(resolved())
