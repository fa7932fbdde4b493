"""Acceptance from the counters in all dialects, from the answers, and from the log."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.bench.client import Endpoint, open_session
from drafthouse.bench.spec_metrics import (
    acceptance,
    acceptance_from_log,
    acceptance_from_requests,
    difference,
    parse_counters,
    read_counters,
    total,
    unreadable,
)
from drafthouse.engines.base import LogLine
from drafthouse.engines.registry import DIALECTS
from tests.fakes.clock_server import clock_server

pytestmark = pytest.mark.processes

# What vLLM 0.32 writes (prometheus_client: `_created` beside each counter, floats, a label an engine).
VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a \\"b\\", c"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a \\"b\\", c"} 3.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="x"} 1.7952e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="x"} 309.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="x"} 104.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="x",position="1"} 29.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="x",position="0"} 62.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="x",position="2"} 13.0
vllm:num_requests_running{engine="0",model_name="x"} 0.0
"""

# What llama.cpp writes (recorded from the xllamacpp wheel 2026.10.11549, which drafted).
LLAMACPP = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 305
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total 312
llamacpp:spec_decode_num_accepted_tokens_total 202
llamacpp:spec_decode_num_drafts_total 23
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 21
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 17
"""


# What TensorRT-LLM 1.3.0rc19 and later write at /prometheus/metrics. Made, after `tensorrt_llm/metrics/collector.py`
# and the names in its tests; two workers, three draft tokens a step.
TRTLLM_REQUESTS = """\
# HELP trtllm_spec_decode_drafted_tokens_total Draft tokens by position.
# TYPE trtllm_spec_decode_drafted_tokens_total counter
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="0",worker="0"} 10.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="0",worker="1"} 20.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="1",worker="0"} 10.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="1",worker="1"} 20.0
trtllm_spec_decode_drafted_tokens_total{engine_type="trtllm",model_name="m",token_position="2",worker="1"} 20.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="0",worker="0"} 10.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="0",worker="1"} 14.0
trtllm_spec_decode_accepted_tokens_total{engine_type="trtllm",model_name="m",token_position="1",worker="1"} 6.0
"""
TRTLLM_ITERATIONS = """\
trtllm_spec_decode_num_draft_tokens_total{engine_type="trtllm",model_name="m"} 81.0
trtllm_spec_decode_num_accepted_tokens_total{engine_type="trtllm",model_name="m"} 31.0
trtllm_spec_decode_acceptance_length{engine_type="trtllm",model_name="m"} 2.0
trtllm_spec_decode_draft_overhead{engine_type="trtllm",model_name="m"} 1.2
"""
TRTLLM_PLAIN = 'trtllm_request_success_total{engine_type="trtllm",finished_reason="end_id"} 3.0\n'


def counted(drafts: int, drafted: int, accepted: int, *positions: int) -> Any:
    return {
        "num_drafts": drafts,
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "per_position": list(positions),
    }


def snapshot(drafts: int, drafted: int, accepted: int, *positions: int) -> Any:
    return {
        "dialect": "vllm",
        "present": True,
        "error": None,
        **counted(drafts, drafted, accepted, *positions),
    }


def test_vllm() -> None:
    assert parse_counters(VLLM) == snapshot(103, 309, 104, 62, 29, 13)


def test_llamacpp() -> None:
    assert parse_counters(LLAMACPP) == {**snapshot(23, 312, 202, 21, 17), "dialect": "llamacpp"}


def test_names_without_total_and_both_spellings() -> None:
    bare = VLLM.replace("_total{", "{")
    assert parse_counters(bare) == parse_counters(VLLM)
    assert parse_counters(bare + VLLM) == parse_counters(VLLM)


def test_an_engine_without_speculation_has_drafted_nothing() -> None:
    got = parse_counters('vllm:num_requests_running{engine="0"} 0.0\n')
    assert (got["dialect"], got["present"], got["num_drafts"]) == ("vllm", False, 0)
    assert difference(got, got) == counted(0, 0, 0)


def test_trtllm_by_request_and_position() -> None:
    expected = {**snapshot(30, 80, 30, 24, 6), "dialect": "trtllm", "family": "by request"}
    assert parse_counters(TRTLLM_PLAIN + TRTLLM_REQUESTS) == expected
    # The two families count the same tokens: one is taken, and the bare spelling is not added either.
    assert parse_counters(TRTLLM_REQUESTS + TRTLLM_ITERATIONS) == expected
    assert parse_counters(TRTLLM_REQUESTS + TRTLLM_REQUESTS.replace("_total{", "{")) == expected
    assert parse_counters(TRTLLM_REQUESTS.replace("trtllm_spec", "trtllm:spec")) == expected


def test_trtllm_by_iteration_does_not_know_the_drafts() -> None:
    got = parse_counters(TRTLLM_ITERATIONS)
    assert got == {**snapshot(0, 81, 31), "num_drafts": None, "dialect": "trtllm", "family": "by iteration"}
    moved = difference(parse_counters(TRTLLM_PLAIN), got)
    assert moved == {"num_drafts": None, "draft_tokens": 81, "accepted_tokens": 31, "per_position": []}
    assert total([counted(1, 3, 1, 1), moved]) == {**counted(0, 84, 32, 1), "num_drafts": None}
    told = acceptance("metrics", moved)
    assert told["spec_decode_acceptance_rate"] == pytest.approx(100 * 31 / 81)
    assert told["spec_decode_acceptance_length"] is None


def test_trtllm_without_a_line_about_drafts_tells_nothing() -> None:
    plain, drafting = parse_counters(TRTLLM_PLAIN), parse_counters(TRTLLM_REQUESTS)
    assert (plain["dialect"], plain["present"]) == ("trtllm", False)
    assert difference(plain, plain) is None  # no 1.2 has such lines, drafting or not
    assert difference(plain, drafting) == counted(30, 80, 30, 24, 6)  # a line begins with its first count
    assert difference(parse_counters(""), drafting) == counted(30, 80, 30, 24, 6)  # so does the page
    assert difference(drafting, drafting) == counted(0, 0, 0, 0, 0)
    assert difference(drafting, plain) is None
    assert difference(unreadable("HTTP 404"), drafting) is None
    assert difference(parse_counters(TRTLLM_ITERATIONS), drafting) is None  # two ways to count do not compare


@pytest.mark.parametrize("text", ["", "<html>", '{"iter": 1}', "tgi:spec_accept_length 2.0\n", "up 1\n"])
def test_text_of_another_server_tells_nothing(text: str) -> None:
    got = parse_counters(text)
    assert got["dialect"] is None
    assert difference(got, got) is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_counters_that_are_no_numbers_are_no_evidence(value: str) -> None:
    name = "llamacpp:spec_decode_num_draft"
    got = parse_counters(f"{name}s_total {value}\n{name}_tokens_total 5 1795261445000\n")
    assert got["error"] == "a counter of drafting that is no number"


def test_more_accepted_than_drafted_is_no_evidence() -> None:
    assert difference(snapshot(10, 30, 12), snapshot(30, 90, 92)) is None


def test_difference() -> None:
    before, after = snapshot(10, 30, 12, 8, 4), snapshot(30, 90, 52, 20, 12, 8)
    assert difference(before, after) == counted(20, 60, 40, 12, 8, 8)


def test_a_restarted_or_unreadable_server_gives_no_difference() -> None:
    assert difference(snapshot(10, 30, 12, 8), snapshot(2, 6, 3, 2)) is None
    assert difference(snapshot(10, 30, 12, 8), snapshot(10, 30, 12, 7)) is None
    assert difference(unreadable("HTTP 404"), snapshot(1, 3, 1)) is None


def test_formulas() -> None:
    got = acceptance("metrics", total([counted(100, 300, 104, 62, 29, 13), counted(100, 300, 46, 38, 8)]))
    assert got["spec_decode_acceptance_rate"] == pytest.approx(25.0)
    assert got["spec_decode_acceptance_length"] == pytest.approx(1.75)
    assert got["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.5, 0.185, 0.065])
    assert (got["spec_decode_num_drafts"], got["spec_decode_draft_tokens"]) == (200, 600)
    assert got["spec_decode_source"] == "metrics"


def test_no_drafts_has_counts_of_zero_and_no_rates() -> None:
    got = acceptance("metrics", counted(0, 0, 0))
    assert got["spec_decode_num_drafts"] == got["spec_decode_draft_tokens"] == 0
    assert got["spec_decode_acceptance_rate"] is None
    assert got["spec_decode_acceptance_length"] is None
    assert got["spec_decode_per_position_acceptance_rates"] is None


def request(**fields: Any) -> Any:
    return {"status": "ok", "output_tokens": 100, **fields}


def test_from_llamacpp_timings() -> None:
    drafted = request(timings={"predicted_n": 100, "draft_n": 96, "draft_n_accepted": 77})
    not_drafted = request(timings={"predicted_n": 100})
    got = acceptance_from_requests([drafted, not_drafted, request(status="cut_off", timings={"draft_n": 9})])
    assert got is not None
    assert got["spec_decode_draft_tokens"] == 96
    assert got["spec_decode_acceptance_rate"] == pytest.approx(100 * 77 / 96)
    assert got["spec_decode_num_drafts"] is got["spec_decode_acceptance_length"] is None
    assert got["spec_decode_source"] == "response"
    nothing = acceptance_from_requests([not_drafted])
    assert nothing is not None
    assert nothing["spec_decode_draft_tokens"] == 0


def test_from_trtllm_average() -> None:
    got = acceptance_from_requests(
        [
            request(avg_decoded_tokens_per_iter=2.0),
            request(avg_decoded_tokens_per_iter=4.0, output_tokens=300),
        ]
    )
    assert got is not None
    # 400 tokens in 50 + 75 steps.
    assert got["spec_decode_acceptance_length"] == pytest.approx(3.2)
    assert got["spec_decode_acceptance_rate"] is None


@pytest.mark.parametrize("average", [0.0, -1.0, float("nan"), float("inf"), None])
def test_an_average_that_is_none_is_passed_over(average: float | None) -> None:
    assert acceptance_from_requests([request(avg_decoded_tokens_per_iter=average)]) is None


def test_from_vllm_metrics_of_each_request() -> None:
    one = {
        "num_spec_steps": 10,
        "num_draft_tokens": 30,
        "num_accepted_draft_tokens": 14,
        "acceptance_histogram": [3, 3, 1, 3],
    }
    got = acceptance_from_requests([request(spec_metrics=one), request(spec_metrics=one)])
    assert got is not None
    assert got["spec_decode_acceptance_length"] == pytest.approx(2.4)
    assert got["spec_decode_acceptance_rate"] == pytest.approx(100 * 14 / 30)
    assert got["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.7, 0.4, 0.3])


def test_answers_that_tell_nothing() -> None:
    assert acceptance_from_requests([request()]) is None
    assert acceptance_from_requests([]) is None


ARTICLE = (
    "(APIServer pid=722408) INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: "
    "Mean acceptance length: 2.01, Accepted throughput: 20.60 tokens/s, Drafted throughput: 60.90 tokens/s, "
    "Accepted: 206 tokens, Drafted: 609 tokens, "
    "Per-position acceptance rate: 0.601, 0.286, 0.128, Avg Draft acceptance rate: 33.8%\n"
)


def test_from_the_log_line_of_the_articles() -> None:
    got = acceptance_from_log(f"INFO loading\n{ARTICLE}INFO done\n")
    assert got is not None
    assert got["spec_decode_num_drafts"] == 203
    assert got["spec_decode_acceptance_rate"] == pytest.approx(33.8, abs=0.05)
    assert got["spec_decode_acceptance_length"] == pytest.approx(2.01, abs=0.005)
    assert got["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.601, 0.286, 0.128], abs=0.0005)
    assert got["spec_decode_source"] == "log"


def test_log_lines_add_up_and_one_without_acceptance_counts_too() -> None:
    nothing = (
        ARTICLE.replace("2.01", "1.00")
        .replace("Accepted: 206", "Accepted: 0")
        .replace("0.601, 0.286, 0.128", "0.000, 0.000, 0.000")
    )
    got = acceptance_from_log(ARTICLE + nothing)
    assert got is not None
    assert got["spec_decode_num_drafts"] == 406
    assert got["spec_decode_draft_tokens"] == 1218
    assert got["spec_decode_acceptance_rate"] == pytest.approx(16.9, abs=0.05)


def test_a_log_without_the_line() -> None:
    assert acceptance_from_log("INFO nothing here\nSpecDecoding metrics: of another shape\n") is None


@pytest.mark.parametrize(
    ("log", "drafts", "drafted", "accepted", "length"),
    [
        (
            "slot print_timing: id 1 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance"
            " length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)",
            87, 259, 167, 2.92,
        ),
        ("draft acceptance rate = 0.69953 (  149 accepted /   213 generated)", None, 213, 149, None),
        # Of two kinds the last totals: those of the first answer are in them.
        (
            "I statistics draft-mtp: #calls(b,g,a) = 1 9 9, #gen drafts = 9, #acc drafts = 9, #gen tokens = 18,"
            " #acc tokens = 12, dur(b,g,a) = 0.1\n"
            "I statistics ngram-mod: #calls(b,g,a) = 11 800 4, #gen drafts = 4, #acc drafts = 4, #gen tokens = 256,"
            " #acc tokens = 47, dur(b,g,a) = 0.3\n"
            "I statistics draft-mtp: #calls(b,g,a) = 11 796 796, #gen drafts = 796, #acc drafts = 694,"
            " #gen tokens = 1585, #acc tokens = 1252, dur(b,g,a) = 0.008",
            800, 1841, 1299, 2.62,
        ),
    ],
)  # fmt: skip
def test_acceptance_of_llama_cpps_log(
    log: str, drafts: int | None, drafted: int, accepted: int, length: float | None
) -> None:
    got = acceptance_from_log(f"I srv start\n{log}\n")
    assert got is not None
    assert got["spec_decode_num_drafts"] == drafts
    assert (got["spec_decode_draft_tokens"], got["spec_decode_accepted_tokens"]) == (drafted, accepted)
    assert got["spec_decode_acceptance_length"] == (length and pytest.approx(length, abs=0.01))


def test_a_count_that_an_older_engine_does_not_keep_is_unknown() -> None:
    text = "vllm:spec_decode_num_accepted_tokens_total 910.0\nvllm:spec_decode_num_draft_tokens_total 1500.0\n"
    snapshot = parse_counters(text)
    assert (snapshot["num_drafts"], snapshot["draft_tokens"], snapshot["accepted_tokens"]) == (None, 1500, 910)


@pytest.mark.parametrize("dialect", ["vllm", "llamacpp"])
@pytest.mark.parametrize("key", ["", "secret"])
async def test_over_http_with_and_without_a_key(dialect: str, key: str) -> None:
    with clock_server(metrics=dialect, metrics_key=key, drafted=3) as server:
        async with open_session(10) as session:
            got = await read_counters(session, Endpoint("a", server.base_url + "/v1/", "clock", "secret"))
            refused = await read_counters(session, Endpoint("a", server.base_url, "clock"))
    assert (got["dialect"], got["present"], got["error"]) == (dialect, True, None)
    assert refused["error"] == (f"{server.base_url}/metrics: HTTP 401" if key else None)


async def test_counters_that_cannot_be_read_say_why() -> None:
    with clock_server() as server:
        async with open_session(10) as session:
            missing = await read_counters(session, Endpoint("a", server.base_url, "clock", "secret"))
            elsewhere = Endpoint("a", server.base_url, "clock", "secret", f"{server.base_url}/v1/models")
            other = await read_counters(session, elsewhere)
    async with open_session(10) as session:
        gone = await read_counters(session, Endpoint("a", server.base_url, "clock"))
    assert str(missing["error"]).endswith("/metrics: HTTP 404")
    assert other["dialect"] is None
    assert "ClientConnectorError" in (gone["error"] or "")


def test_where_the_counters_are_asked_for() -> None:
    assert Endpoint("a", "http://h:1/v1/", "m").counters_url == "http://h:1/metrics"
    assert Endpoint("a", "http://h:1", "m", metrics_path="/prometheus/metrics").counters_url == (
        "http://h:1/prometheus/metrics"
    )
    assert Endpoint("a", "http://h:1", "m", None, "http://x/y").counters_url == "http://x/y"


def test_a_log_of_lengths_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [LogLine(None, 0, 0, [], 2.0), LogLine(None, 0, 0, [], 3.0)]
    monkeypatch.setattr(type(DIALECTS["llamacpp"]), "log_lines", lambda self, text: lines)
    got = acceptance_from_log("a log")
    assert got is not None
    assert (got["spec_decode_source"], got["spec_decode_acceptance_length"]) == ("log", 2.5)
    assert (got["spec_decode_num_drafts"], got["spec_decode_draft_tokens"]) == (None, None)
