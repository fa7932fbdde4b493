"""The numbers of a step against requests whose truth is known."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.bench.sweep.stats import inside, is_narrow, meets_limits, noise_interval, step_numbers


def request(started_s: float, **given: Any) -> Any:
    """A request of 11 tokens: 100 ms to the first, then one every 100 ms, unless said otherwise."""
    plain = {
        "prompt_id": "p", "status": "ok", "started_s": started_s, "output_tokens": 11, "ttft_ms": 100.0,
        "tpot_ms": 100.0, "e2el_ms": 1100.0, "itls_ms": [100.0] * 10,
    }  # fmt: skip
    return {**plain, **given}


def test_the_share_of_a_time_inside_the_window() -> None:
    window = (1.0, 3.0)
    assert inside(1.0, 3.0, window) == 1.0
    assert inside(2.0, 4.0, window) == 0.5
    assert inside(0.0, 4.0, window) == 0.5
    assert inside(3.5, 4.0, window) == 0.0
    assert (inside(2.0, 2.0, window), inside(4.0, 4.0, window)) == (1.0, 0.0)


def test_rates_are_those_of_full_load_alone() -> None:
    # Two at a time from 0 to 2.2 s: four whole requests of 11 tokens, 1.1 s each.
    whole = [request(start) for start in (0.0, 0.0, 1.1, 1.1)]
    got = step_numbers(whole, (0.0, 2.2), {})
    assert got["output_throughput"] == pytest.approx(44 / 2.2)
    assert got["request_throughput"] == pytest.approx(4 / 2.2)
    assert got["per_user_tok_s"] == pytest.approx(10.0)
    # Full load ended at 1.65 s: half of the later two's tokens came after it, and the rate stays what it was.
    cut = step_numbers(whole, (0.0, 1.65), {})
    assert cut["output_throughput"] == pytest.approx(2 * 11 / 1.65 + 2 * 11 * 0.45 / 1.65)
    assert cut["request_throughput"] == pytest.approx(3 / 1.65)
    assert cut["duration_s"] == 1.65


def test_a_step_shorter_than_an_answer_has_its_rates_over_all_of_it() -> None:
    # Two streams, 1.1 s an answer, and the time was up after 0.12 s: one token of eleven had come.
    requests = [request(0.0), request(0.0)]
    got = step_numbers(requests, (0.0, 0.12), {"ttft_ms": 100.0}, streams=2)
    assert (got["short"], got["duration_s"], got["tail"]) == (True, 1.1, 0)
    assert got["output_throughput"] == pytest.approx(2 * 11 / 1.1)
    assert got["request_throughput"] == got["goodput"] == pytest.approx(2 / 1.1)
    # One wave that ended in time is enough, and half of one is not.
    assert not step_numbers(requests, (0.0, 1.1), {}, streams=2)["short"]
    half = step_numbers([request(0.0), request(0.0, e2el_ms=2100.0)], (0.0, 1.5), {}, streams=2)
    assert (half["short"], half["duration_s"]) == (True, 2.1)
    assert not step_numbers([], (0.0, 1.0), {}, streams=2)["short"]


def test_what_came_after_full_load_is_in_no_latency() -> None:
    late = request(1.9, tpot_ms=10.0, e2el_ms=200.0, itls_ms=[10.0] * 10)
    got = step_numbers([request(0.0), late], (0.0, 1.95), {})
    assert (got["tail"], got["completed"]) == (1, 2)
    assert got["tpot_ms"]["median"] == 100.0
    assert got["tpot_by_prompt"] == {"p": [100.0]}
    # It began under full load, so its first token counts.
    assert got["ttft_ms"]["median"] == 100.0
    # Where there is nothing else, it is taken.
    alone = step_numbers([late], (0.0, 1.95), {})
    assert (alone["tail"], alone["tpot_ms"]["median"]) == (0, 10.0)


def test_failures_are_counted_and_in_nothing_else() -> None:
    bad = request(0.0, status="failed", ttft_ms=None, tpot_ms=None, e2el_ms=None, output_tokens=None, itls_ms=[])
    cut = request(0.0, status="cut_off", tpot_ms=None, output_tokens=None)
    got = step_numbers([bad, request(0.0), cut], (0.0, 1.1), {})
    assert (got["num_prompts"], got["completed"], got["failed"]) == (3, 1, 2)
    assert got["output_throughput"] == pytest.approx(10.0)


def test_answers_in_one_chunk_are_counted_and_in_no_time_per_token() -> None:
    # Half of them came whole, at the end of their time: 0 ms a token, which would make 50 of 100.
    at_once = request(0.0, tpot_ms=0.0, ttft_ms=1100.0, itls_ms=[])
    got = step_numbers([request(0.0), at_once, request(0.0), at_once], (0.0, 1.1), {})
    assert (got["completed"], got["without_tpot"]) == (4, 2)
    assert got["tpot_ms"] == {"median": 100.0, "p90": 100.0, "p99": 100.0}
    assert got["tpot_by_prompt"] == {"p": [100.0, 100.0]}
    assert got["per_user_tok_s"] == pytest.approx(10.0)
    # Their tokens came all the same.
    assert got["output_throughput"] == pytest.approx(44 / 1.1)
    alone = step_numbers([at_once, request(0.0, tpot_ms=None, output_tokens=1)], (0.0, 1.1), {})
    assert (alone["without_tpot"], alone["tpot_ms"]["median"], alone["tpot_by_prompt"]) == (2, None, {})
    assert (alone["per_user_tok_s"], alone["tpot_interval"]) == (None, None)


def test_nothing_well_is_no_number() -> None:
    for requests, window in (([], (0.0, 0.0)), ([request(0.0, status="failed")], (0.0, 2.0))):
        got = step_numbers(requests, window, {"ttft_ms": 1.0})
        for name in ("output_throughput", "per_user_tok_s", "request_throughput", "goodput", "tpot_interval"):
            assert got[name] is None
        assert got["ttft_ms"] == {"median": None, "p90": None, "p99": None}


def test_goodput_is_what_kept_every_limit() -> None:
    requests = [request(0.0), request(0.0, ttft_ms=400.0), request(0.0, tpot_ms=200.0)]
    window = (0.0, 1.1)
    assert step_numbers(requests, window, {})["goodput"] is None
    assert step_numbers(requests, window, {"ttft_ms": 100.0})["goodput"] == pytest.approx(2 / 1.1)
    assert step_numbers(requests, window, {"ttft_ms": 100.0, "tpot_ms": 100.0})["goodput"] == pytest.approx(1 / 1.1)
    assert step_numbers(requests, window, {"ttft_ms": 1.0})["goodput"] == 0.0
    of_one_token: Any = {"ttft_ms": 1.0, "tpot_ms": None}
    assert meets_limits(of_one_token, {"tpot_ms": 5.0})


def test_percentiles() -> None:
    requests = [request(0.0, ttft_ms=float(number)) for number in range(101)]
    got = step_numbers(requests, (0.0, 1.1), {})["ttft_ms"]
    assert got == {"median": 50.0, "p90": 90.0, "p99": 99.0}


# ---- the interval --------------------------------------------------------------------------------


def drawn(dice: random.Random, prompts: int, times: int, noise: float) -> dict[str, list[float]]:
    """Prompts of very different speed, each with so much noise of its own."""
    return {
        f"p{number}": [10.0 * (1 + number) * dice.lognormvariate(0.0, noise) for _ in range(times)]
        for number in range(prompts)
    }


@pytest.mark.parametrize(("times", "least"), [(2, 0.90), (4, 0.93), (10, 0.93)])
def test_the_interval_covers_the_truth(times: int, least: float, figure: Callable[[str], None]) -> None:
    dice = random.Random(5)
    # Five prompts around 10, 20, 30, 40, 50: the median over them is the middle one's, 30.
    runs, hits = 400, 0
    for _ in range(runs):
        got = noise_interval(drawn(dice, 5, times, 0.05), resamples=400)
        assert got is not None
        hits += got["low"] <= 30.0 <= got["high"]
    figure(f"the interval of a step covers the truth in {hits / runs:.1%} of {runs} runs, {times} requests a prompt")
    assert hits / runs >= least


def test_prompts_that_differ_do_not_widen_it_and_noise_does() -> None:
    dice = random.Random(1)
    steady = noise_interval(drawn(dice, 8, 6, 0.001))
    noisy = noise_interval(drawn(dice, 8, 6, 0.3))
    assert is_narrow(steady, 0.01)
    assert not is_narrow(noisy, 0.03)
    assert not is_narrow(None, 0.5)


def test_more_requests_make_it_narrower() -> None:
    dice = random.Random(2)
    widths = []
    for times in (3, 30, 300):
        got = noise_interval(drawn(dice, 6, times, 0.2))
        assert got is not None
        assert got["n"] == 6 * times
        widths.append(got["high"] - got["low"])
    assert widths[0] > 1.8 * widths[1] > 1.8 * widths[2]


def test_prompts_asked_once_have_the_plain_interval() -> None:
    values = {f"p{number}": [float(number)] for number in range(1, 22)}
    got = noise_interval(values)
    assert got is not None
    assert (got["median"], got["n"]) == (11.0, 21)
    assert got["low"] < 9
    assert got["high"] > 13
    assert noise_interval({}) is None
    assert noise_interval({"p": []}) is None


def test_the_same_values_give_the_same_interval() -> None:
    values = drawn(random.Random(3), 4, 5, 0.1)
    assert noise_interval(values) == noise_interval(values)
    medians = [statistics.median(one) for one in values.values()]
    got = noise_interval(values)
    assert got is not None
    assert got["median"] == pytest.approx(statistics.median(medians))


def test_answers_that_came_in_one_piece_have_no_noise_to_share() -> None:
    got = noise_interval({f"p{number}": [0.0, 10.0 + number, 10.0] for number in range(4)})
    assert got is not None
    assert got["n"] == 12
    assert 0.0 <= got["low"] <= got["median"] <= got["high"] <= 13.0
    assert not is_narrow(got, 0.03)
    same = noise_interval({"p": [5.0] * 6})
    assert same is not None
    assert (same["low"], same["high"]) == (5.0, 5.0)
