"""The result of an arm: vLLM's definitions, failures counted apart, acceptance from summed counters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drafthouse.analysis.drafting import drafting_of
from drafthouse.bench.results import assemble, not_ok_count, percentile, spread, summary_lines


def request(number: int, **fields: Any) -> Any:
    """A request that took 100 ms to the first token and then 10 ms a token."""
    return {
        "prompt_id": f"p{number}",
        "kind": "chat",
        "suite": "s",
        "group": "chat",
        "round": 1,
        "temperature": 0.0,
        "status": "ok",
        "error": None,
        "started_s": 1.0 * number,
        "input_tokens": 20,
        "output_tokens": 11,
        "text": "Eleven tokens of text, more or less, and no thought.",
        "cached_tokens": None,
        "ttft_ms": 100.0 + number,
        "ttfat_ms": 100.0 + number,
        "e2el_ms": 200.0 + number,
        "tpot_ms": 10.0,
        "itls_ms": [30.0, 30.0, 40.0],
        "timings": None,
        "avg_decoded_tokens_per_iter": None,
        "spec_metrics": None,
        **fields,
    }


def counters(drafts: int, accepted: int, dialect: str | None = "vllm") -> Any:
    return {
        "dialect": dialect,
        "present": True,
        "num_drafts": drafts,
        "draft_tokens": 3 * drafts,
        "accepted_tokens": accepted,
        "per_position": [accepted],
    }


def step(requests: list[Any], started: float = 1000.0, **arm: Any) -> Any:
    groups = dict.fromkeys((one["round"], one["group"]) for one in requests)
    measured = {
        "model_id": "m",
        "requests": requests,
        "spans": [{"round": number, "group": group, "duration_s": 2.0} for number, group in groups],
        "counters": [
            {"round": number, "group": group, "before": counters(10, 5), "after": counters(110, 105)}
            for number, group in groups
        ],
        "warmup": {"sent": 1, "failed": 0, "error": None},
        **arm,
    }
    return {
        "started_unix_s": started,
        "settings": {"concurrency": 4},
        "suites": ["s"],
        "arms": {"speculative": measured},
        "machine": {"before": {"time": started}, "after": {"time": started + 1}, "groups": []},
    }


def test_percentiles_by_linear_interpolation() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 50) == 2.5
    assert percentile(values, 99) == pytest.approx(3.97)
    assert (percentile(values, 0), percentile(values, 100)) == (1.0, 4.0)
    assert percentile([7.0], 99) == 7.0
    assert percentile([], 50) is None


def test_spread_uses_the_population_standard_deviation() -> None:
    got = spread([1.0, 2.0, 3.0, 4.0], "ttft")
    assert got["mean_ttft_ms"] == 2.5
    assert got["std_ttft_ms"] == pytest.approx(math.sqrt(1.25))
    assert spread([], "itl") == {
        "mean_itl_ms": None,
        "median_itl_ms": None,
        "std_itl_ms": None,
        "p99_itl_ms": None,
    }


def test_the_names_of_vllm_bench_serve() -> None:
    result = assemble([step([request(number) for number in range(4)])], "speculative")
    assert result["schema"] == "drafthouse.result/1"
    assert (result["backend"], result["model_id"], result["request_rate"]) == ("openai-chat", "m", "inf")
    assert (result["num_prompts"], result["completed"], result["failed"], result["max_concurrency"]) == (
        4,
        4,
        0,
        4,
    )
    assert (result["total_input_tokens"], result["total_output_tokens"], result["duration"]) == (80, 44, 2.0)
    assert result["request_throughput"] == 2.0
    assert result["output_throughput"] == 22.0
    assert result["total_token_throughput"] == 62.0
    assert result["median_ttft_ms"] == 101.5
    assert result["mean_e2el_ms"] == 201.5
    assert result["p99_tpot_ms"] == 10.0
    assert result["median_itl_ms"] == 30.0
    assert result["mean_itl_ms"] == pytest.approx(100 / 3)
    assert result["date"] == "19700101-001640"
    for metric in ("ttft", "ttfat", "tpot", "itl", "e2el"):
        assert {f"{word}_{metric}_ms" for word in ("mean", "median", "std", "p99")} <= set(result)


def test_only_good_requests_are_averaged() -> None:
    bad = [
        request(5, status="failed", error="HTTP 500", ttft_ms=None, itls_ms=[], output_tokens=None),
        request(6, status="cut_off", ttft_ms=9999.0, itls_ms=[9999.0], output_tokens=None, tpot_ms=None),
        request(7, status="empty", ttft_ms=None, output_tokens=0),
        request(8, status="no_usage", ttft_ms=9999.0, output_tokens=None, tpot_ms=None),
        request(9, status="no_usage", ttft_ms=9999.0, output_tokens=None, tpot_ms=None),
    ]
    result = assemble([step([request(0), *bad])], "speculative")
    good = assemble([step([request(0)])], "speculative")
    assert [result[name] for name in ("completed", "failed", "cut_off", "empty", "no_usage")] == [
        1,
        1,
        1,
        1,
        2,
    ]
    assert (result["num_prompts"], not_ok_count(result)) == (6, 5)
    for name in ("total_output_tokens", "output_throughput", "mean_ttft_ms", "p99_itl_ms", "mean_tpot_ms"):
        assert result[name] == good[name]


def test_acceptance_from_summed_differences() -> None:
    requests = [request(0), request(1, group="code")]
    result = assemble([step(requests)], "speculative")
    assert result["spec_decode_source"] == "metrics"
    assert (result["spec_decode_num_drafts"], result["spec_decode_accepted_tokens"]) == (200, 200)
    assert result["spec_decode_acceptance_rate"] == pytest.approx(100 / 3)
    assert result["spec_decode_acceptance_length"] == 2.0
    assert result["groups"]["code"]["spec_decode_num_drafts"] == 100
    assert result["spec_decode_per_position_acceptance_rates"] == [1.0]
    assert len(result["counters"]) == 2


def test_the_next_source_where_one_group_has_no_counters() -> None:
    timings = {"draft_n": 8, "draft_n_accepted": 6}
    unknown = [{"round": 1, "group": "chat", "before": counters(1, 1, None), "after": counters(1, 1, None)}]
    log = "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 10 tokens, Drafted: 30 tokens"
    answers = assemble([step([request(0, timings=timings)], counters=unknown)], "speculative", log=log)
    logged = assemble([step([request(0)], counters=unknown)], "speculative", log=log)
    nothing = assemble([step([request(0)], counters=unknown)], "speculative")
    assert (answers["spec_decode_source"], answers["spec_decode_acceptance_rate"]) == ("response", 75.0)
    assert (logged["spec_decode_source"], logged["spec_decode_num_drafts"]) == ("log", 10)
    assert (nothing["spec_decode_source"], nothing["spec_decode_num_drafts"]) == (None, None)


def test_steps_of_an_alternated_experiment_are_one_result() -> None:
    first = step([request(0), request(1)], 1000.0)
    other: Any = {**step([request(0)]), "arms": {"baseline": {}}}
    second = step([request(0, round=2), request(1, round=2)], 1500.0)
    result: Any = assemble(
        [first, other, second],
        "speculative",
        profile="p",
        key="k",
        engine={"id": "vllm", "version": "0.32.0"},
    )
    assert (result["rounds"], result["num_prompts"], result["duration"]) == (2, 4, 4.0)
    assert [one["started_s"] for one in result["requests"]] == [0.0, 1.0, 500.0, 501.0]
    assert result["machine"]["before"] == {"time": 1000.0}
    assert result["machine"]["after"] == {"time": 1501.0}
    assert (result["profile"], result["key"], result["engine"]["id"]) == ("p", "k", "vllm")
    with pytest.raises(ValueError, match="stock"):
        assemble([first], "stock")


def test_nothing_that_went_well_has_no_figures() -> None:
    result = assemble([step([request(0, status="failed", error="HTTP 500", output_tokens=None)])], "speculative")
    assert (result["completed"], result["output_throughput"], result["median_ttft_ms"]) == (0, 0.0, None)
    assert summary_lines(result)[0] == "1 of 1 requests did not succeed: 1 failed."


def test_the_summary_says_failures_first() -> None:
    failed = request(3, status="failed", error="HTTP 500: no", output_tokens=None, group="code")
    cut = request(4, status="cut_off", error="reset", output_tokens=None, group="code")
    lines = summary_lines(assemble([step([request(0), request(1), failed, cut])], "speculative"))
    assert lines[0] == "2 of 4 requests did not succeed: 1 failed, 1 cut off."
    assert lines[1:3] == ["  first failed: p3: HTTP 500: no", "  first cut off: p4: reset"]
    assert lines[3] == "They are not included in the numbers below."
    rows = [line.split() for line in lines if line.startswith(("chat", "code", "all"))]
    assert [row[:2] for row in rows] == [["chat", "2/2"], ["code", "0/2"], ["all", "2/4"]]


def test_the_summary_of_a_good_run() -> None:
    lines = summary_lines(assemble([step([request(0, cached_tokens=15)])], "speculative"))
    assert lines[0] == "m: 1 request measured, 4 at a time, 2.0 s"
    assert "33.3 %" in lines[3]
    assert any("the engine's counters" in line for line in lines)
    assert lines[-1] == "75 % of the input tokens came from the engine's prefix cache, which shortens TTFT."


def test_an_answer_in_one_piece_is_in_no_figure_of_tpot_and_counted() -> None:
    # What earlier versions gave such an answer; and one that a proxy let go in three reads.
    whole = [request(number) for number in range(5)]
    burst = [
        request(5, tpot_ms=0.0, itls_ms=[], chunks=1),
        request(6, tpot_ms=0.02, itls_ms=[0.1, 0.1], chunks=3),
        request(7, tpot_ms=None, itls_ms=[], chunks=1),
    ]
    result = assemble([step([*whole, *burst])], "speculative")
    assert result["completed"] == 8
    assert (result["mean_tpot_ms"], result["median_tpot_ms"], result["std_tpot_ms"]) == (10.0, 10.0, 0.0)
    assert result["without_tpot"] == result["groups"]["chat"]["without_tpot"] == 3
    lines = summary_lines(result)
    assert "3 of 8 answers had no TPOT: one token, or fewer than 3 chunks (a proxy that buffers the stream?)." in lines
    assert not any("had no TPOT" in line for line in summary_lines(assemble([step(whole)], "speculative")))


def test_what_was_told_to_come_back_later_is_shown() -> None:
    requests = [request(0, throttled=2, throttled_s=3.5), request(1, throttled=0, throttled_s=0.0)]
    result = assemble([step(requests)], "speculative")
    assert result["throttled"] == 1
    assert (
        "Throttled: speculative: 1 of 2 requests were answered HTTP 429 first, 2 times in all, and retried "
        "after the wait it asked for (3.5 s)." in summary_lines(result)
    )


def test_counts_that_contradict_each_other_stand_first() -> None:
    lines = summary_lines(assemble([step([request(0, output_tokens=10**12, max_tokens=32)])], "speculative"))
    assert lines[0] == (
        "Miscounted: usage and max_tokens disagree: 1,000,000,000,000 output tokens, but at most 32 were requested "
        "(first p0, round 1; 1 of 1 answer)."
    )


def read(**fields: Any) -> Any:
    nothing: dict[str, Any] = {"num_drafts": None, "draft_tokens": None, "accepted_tokens": None, "per_position": []}
    return {"dialect": "trtllm", "present": True, "error": None, **nothing, **fields}


def test_what_counters_do_not_say_the_answers_do() -> None:
    told = {"num_draft_tokens": 15, "num_accepted_draft_tokens": 6}
    around = [{"round": 1, "group": "chat", "before": read(), "after": read(num_drafts=10, accepted_tokens=15)}]
    without = assemble([step([request(0)], counters=around)], "speculative")
    beside = assemble([step([request(0, spec_metrics=told)], counters=around)], "speculative")
    for one, rate in ((without, None), (beside, 40.0)):
        assert (one["spec_decode_source"], one["spec_decode_acceptance_length"]) == ("metrics", 2.5)
        assert (one["spec_decode_num_drafts"], one["spec_decode_acceptance_rate"]) == (10, rate)
        assert drafting_of(one)["drafted"] is True
    # Answers that count all of their drafts come first: another client's move the counters, not them.
    alone = assemble([step([request(0, spec_metrics={"num_spec_steps": 5, **told})], counters=around)], "speculative")
    assert (alone["spec_decode_source"], alone["spec_decode_acceptance_length"]) == ("response", 2.2)
    still = [{"round": 1, "group": "chat", "before": read(num_drafts=10), "after": read(num_drafts=10)}]
    assert drafting_of(assemble([step([request(0)], counters=still)], "speculative"))["drafted"] is False


def test_a_gauge_is_read_last_and_said() -> None:
    around = [{"round": at, "group": "chat", "before": read(), "after": read(length=2.0 + at)} for at in (0, 1)]
    result = assemble([step([request(0)], counters=around)], "speculative")
    assert (result["spec_decode_source"], result["spec_decode_acceptance_length"]) == ("gauge", 2.5)
    assert drafting_of(result)["drafted"] is True
    assert any("an engine gauge of its last steps only" in line for line in summary_lines(result))
    flat = [{**around[0], "after": read(length=1.0)}]
    assert drafting_of(assemble([step([request(0)], counters=flat)], "speculative"))["drafted"] is None
