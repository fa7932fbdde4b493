"""The break-even: Leviathan's formula where it holds, and the crossover of servers of known law where it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drafthouse.analysis.break_even import (
    Counts,
    Point,
    break_even,
    cost_at,
    cost_of,
    counts_of,
    gain_of,
)
from drafthouse.analysis.break_even_results import points_of, points_of_pair
from drafthouse.analysis.words import THRESHOLD
from drafthouse.profiles.expected_speed import mean_acceptance_length
from tests.fakes.crossover_server import Law, known_crossover
from tests.support.break_even import crosses_at
from tests.support.ladders import KIND, make_ladder, make_step
from tests.support.loosely import fill, points_of_ladder
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

K = 4
LEVELS = (1, 2, 4, 8, 16, 32)
#: A target step takes 5 + 0.1 n ms with n requests under way, one with K drafted tokens 7.5 + 0.75 n ms.
BASELINE = Law(fixed_ms=5.0, each_ms=0.1)
FIXED_MS, EACH_MS = 7.5, 0.75


def speculative(length: float) -> Law:
    """A server that gets so many tokens out of each step: its law is per token."""
    return Law(fixed_ms=FIXED_MS / length, each_ms=EACH_MS / length)


def counts(rate: float, drafts: float = 1000.0) -> Counts:
    """A draft of K tokens in every step."""
    drafted = drafts * K
    return Counts(drafts + rate * drafted, drafted, rate * drafted)


def ladder_of(rate: float, kind: str = KIND, **fields: Any) -> Any:
    """What a ladder would keep of these laws, without noise."""
    traffic = counts(rate)
    length = traffic.tokens / 1000.0
    told = {
        "spec_decode_draft_tokens": traffic.drafted,
        "spec_decode_accepted_tokens": traffic.accepted,
        "spec_decode_acceptance_length": 1 + traffic.accepted / 1000.0,
        "completed": 10,
        "mean_output_tokens": traffic.tokens / 10,
        "kind": kind,
    }
    steps = []
    for level in LEVELS:
        for arm, law in (("baseline", BASELINE), ("speculative", speculative(length))):
            times = {f"p{n}": [law.tpot_ms(level, 0.0)] for n in range(10)}
            steps.append(make_step(level, arm, 1, times, **(told if arm == "speculative" else {"kind": kind})))
    return make_ladder(LEVELS, steps, kinds=(kind,), **fields)


def true_cost(level: float) -> float:
    """What a drafted token costs by the law, in target steps."""
    return ((FIXED_MS + EACH_MS * level) / BASELINE.tpot_ms(int(level), 0.0) - 1) / K


# ---- the formula ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("cost", [0.0, 0.05, 0.4])
def test_with_a_draft_in_every_step_the_gain_is_leviathans(chance: float, tokens: int, cost: float) -> None:
    steps = 1000.0
    # A token of the step itself, and each drafted one where all before it were accepted.
    accepted = steps * sum(chance**place for place in range(1, tokens + 1))
    traffic = Counts(steps + accepted, steps * tokens, accepted)
    speedup = mean_acceptance_length(chance, tokens) / (1 + tokens * cost)
    assert gain_of(traffic, cost) == pytest.approx(speedup)
    assert cost_of(traffic, speedup) == pytest.approx(cost)


def test_the_break_even_is_where_nothing_is_gained() -> None:
    bar: Any = break_even([Point(1, 0.2, 0.1, 0.3, 1)], 1, K)
    assert (bar["rate"], bar["length"]) == (0.2, pytest.approx(1.8))
    assert gain_of(counts(0.2), 0.2) == pytest.approx(1.0)


def test_a_method_that_seldom_drafts_breaks_even_at_the_same_acceptance() -> None:
    seldom = Counts(10_000, 400, 80)
    assert gain_of(seldom, 0.2) == pytest.approx(1.0)
    assert gain_of(seldom, 0.1) > 1 > gain_of(seldom, 0.3) > 0.99
    assert cost_of(seldom, gain_of(seldom, 0.13)) == pytest.approx(0.13)


@pytest.mark.parametrize(
    ("drafts", "tokens", "expected"), [(None, None, 75.0), (25, None, 75.0), (100, None, 150.0), (25, 500.0, 500.0)]
)
def test_counts_that_an_engine_does_not_keep(drafts: float | None, tokens: float | None, expected: float) -> None:
    assert counts_of(100, 50, 4, drafts, tokens) == Counts(expected, 100, 50)


def test_a_cost_between_two_loads_is_on_a_line_over_doublings() -> None:
    points = [Point(4, 0.2, 0, 1, 1), Point(1, 0.1, 0, 1, 1)]
    cost, within = cost_at(points, 2)
    assert within
    assert cost == pytest.approx(0.15)
    assert [cost_at(points, level) for level in (0.5, 1, 4, 64)] == [
        (0.1, False),
        (0.1, True),
        (0.2, True),
        (0.2, False),
    ]
    with pytest.raises(ValueError, match="no load"):
        cost_at([], 1)


# ---- from what was measured ------------------------------------------------------------------------


@pytest.mark.parametrize("measured_rate", [0.3, 0.55, 0.8])
@pytest.mark.parametrize("other_rate", [0.25, 0.4, 0.6])
def test_one_texts_ladder_tells_where_another_text_crosses(measured_rate: float, other_rate: float) -> None:
    """The law gives the crossover of the other text; the ladder of the first has never seen that text."""
    points = points_of_ladder(ladder_of(measured_rate), K)
    for point in points:
        assert point.cost == pytest.approx(true_cost(point.level))
    truth = known_crossover(BASELINE, speculative(1 + K * other_rate), THRESHOLD)
    found = crosses_at(points, counts(other_rate), THRESHOLD)
    if truth < 1:
        assert found == 0.0
    else:
        assert found is not None
        assert abs(math.log2(found / truth)) < 1
        crossover = fill(ladder_of(other_rate), 200)[KIND]["pays_until"] or 0.0
        assert abs(math.log2(found / crossover)) < 1


def test_beyond_the_ladder_nothing_is_claimed() -> None:
    points = points_of_ladder(ladder_of(0.8), K)
    assert crosses_at(points, counts(1.0), 1.01) is None
    assert crosses_at(points, counts(0.01), 1.0) == 0.0
    assert break_even(points, 64, K)["measured"] is False


def test_steps_that_do_not_count_tell_nothing() -> None:
    ladder = ladder_of(0.5)
    for step in ladder["steps"]:
        step["status"] = "polluted" if step["level"] == 4 else "ok"
    assert [point.level for point in points_of_ladder(ladder, K)] == [1, 2, 8, 16, 32]
    assert points_of_ladder({**ladder, "load": "open"}, K) == []


def test_the_engines_own_count_of_tokens_is_taken_where_there_is_one() -> None:
    ladder = ladder_of(0.5)
    for step in ladder["steps"]:
        if step["arm"] == "speculative":
            # Half of the tokens came without a draft, and the answers' own mean would not show it.
            step["counters"] = {
                "before": {"traffic": {"output_tokens": 7.0}},
                "after": {"traffic": {"output_tokens": 6007.0}},
            }
    found = points_of_ladder(ladder, K)[0]
    speedup = fill(ladder, 200)[KIND]["levels"][0]["speedup"]["gain"]
    assert found.cost == pytest.approx(cost_of(Counts(6000, 4000, 2000), speedup))


def result(tpot_ms: float, drafted: int = 0, accepted: int = 0, **fields: Any) -> Any:
    requests = [
        {"status": "ok", "group": KIND, "prompt_id": f"p{n}", "round": 1, "tpot_ms": tpot_ms, "kind": KIND}
        for n in range(8)
    ]
    group = {
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_num_drafts": drafted // K,
        "total_output_tokens": drafted // K + accepted,
    }
    return {"max_concurrency": 1, "requests": requests, "groups": {KIND: group}, **fields}


def test_two_results_tell_the_cost_at_their_own_load() -> None:
    # 4,000 drafted, 2,000 accepted: three tokens a step. 1.5 times as fast, so a step takes two target steps.
    (point,) = points_of_pair(result(15.0), result(10.0, 4000, 2000), K)
    assert point.level == 1.0
    assert point.cost == pytest.approx(0.25)
    assert point.low <= point.cost <= point.high
    ladder = ladder_of(0.5)
    assert len(points_of(result(15.0), result(10.0, 4000, 2000), ladder, K)) == len(LEVELS)
    assert points_of(result(15.0), result(10.0, 4000, 2000), None, K) == [point]


def test_at_a_level_that_both_measured_the_narrower_interval_tells() -> None:
    arms = result(15.0), result(10.0, 4000, 2000)
    (of_pair,) = points_of_pair(*arms, K)
    narrow = ladder_of(0.5)
    narrow["steps"] += [{**step, "round": 2} for step in narrow["steps"]]
    assert points_of(*arms, narrow, K)[0] == points_of_ladder(narrow, K)[0] != of_pair
    ladder = ladder_of(0.5)
    for step in ladder["steps"]:
        for place, times in enumerate(step["tpot_by_prompt"].values()):
            times[0] *= 1.0 + 0.5 * (place % 2) * (step["arm"] == "speculative")
    wide = points_of_ladder(ladder, K)[0]
    assert wide.level == of_pair.level
    assert wide.high - wide.low > of_pair.high - of_pair.low
    assert points_of(*arms, ladder, K)[0] == of_pair


def test_without_a_draft_there_is_no_break_even() -> None:
    bad = {"counters": [{"group": KIND, "round": 1, "foreign": {"polluted": True, "said": "somebody else"}}]}
    for arms in ((result(15.0), result(10.0)), (result(15.0), result(10.0, 4000, 2000, **bad))):
        with refuses("no-drafted-tokens"):
            points_of(*arms, None, K)
