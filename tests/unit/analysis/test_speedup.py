"""The estimator and the table of words: against the same arithmetic written a second time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drafthouse.analysis.decision import Measured, decide
from drafthouse.analysis.speedup import estimate_speedup, rounds_in, sum_ratio
from drafthouse.bench.stats import t_quantile, t_tail
from tests.support import rule_reference
from tests.support.rule_reference import as_log_times, made, rule


def product(times: Any, kinds: Any, temperatures: Any, tokens: Any, together: bool = False) -> Any:
    base, spec = as_log_times(times["baseline"]), as_log_times(times["speculative"])
    asked = rounds_in(base, spec)
    seconds = [
        {p: tokens[p] * sum(math.exp(arm[p][r]) for r in asked[p]) / len(asked[p]) for p in asked}
        for arm in (base, spec)
    ]
    by_temperature = {
        t: sum_ratio(*({p: own[p] for p in own if temperatures[p] == t} for own in seconds))
        for t in set(temperatures.values())
    }
    speedup = estimate_speedup(base, spec, kinds, together=together)
    return Measured(speedup, sum_ratio(*seconds), {t: one for t, one in by_temperature.items() if one})


@pytest.mark.parametrize("rounds", [2, 3, 4, 6])
def test_the_rule_is_that_of_its_description(rounds: int) -> None:
    words = set()
    for seed in range(120):
        experiment = made(seed, rounds)
        expected = rule(*experiment)
        measured = product(*experiment)
        decision = decide(measured)
        found = [math.exp(x) for x in (measured.speedup.log_gain, measured.speedup.low, measured.speedup.high)]
        assert found == pytest.approx([expected.speedup, expected.low, expected.high], rel=1e-5), seed
        assert math.exp(measured.total.log_ratio) == pytest.approx(expected.total, rel=1e-9)
        assert (decision.word, decision.fresh or "") == (expected.word, expected.fresh), seed
        words.add(str(decision.word))
    assert words == {"pays", "does not pay", "cannot say"}


@pytest.mark.parametrize(("tail", "freedom", "printed"), [
    (0.025, 1, 12.7062), (0.025, 2, 4.3027), (0.01, 3, 4.5407), (0.01, 30, 2.4573), (0.1, 100, 1.2901),
])  # fmt: skip
def test_quantiles_of_t_are_those_of_the_tables(tail: float, freedom: float, printed: float) -> None:
    assert t_quantile(tail, freedom) == pytest.approx(printed, abs=6e-5)
    assert rule_reference.t_quantile(tail, freedom) == pytest.approx(printed, rel=2e-4)
    assert t_tail(t_quantile(tail, freedom + 0.3), freedom + 0.3) == pytest.approx(tail)
