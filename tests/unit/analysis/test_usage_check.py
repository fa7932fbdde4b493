"""A server's token counts against every other source: what contradicts them is named, and nothing real is accused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.bench.foreign_traffic import foreign_work, token_sums
from drafthouse.bench.usage_check import SLACK_TOKENS, arm_contradictions, contradictions, least_generated, sources_of
from drafthouse.report.data.build import build_report
from tests.support.builders import NOTHING, make_pair, make_resolved
from tests.support.loosely import judge

Data = Any


def inflated(result: Data, factor: float) -> Data:
    """Count so many times as many tokens for the same text in the same time: the TPOT falls by as much."""
    for request in result["requests"]:
        request["output_tokens"] = round(request["output_tokens"] * factor)
        request["tpot_ms"] = (request["e2el_ms"] - request["ttft_ms"]) / (request["output_tokens"] - 1)
    return result


def pair(gain: float = 1.0) -> tuple[Data, Data]:
    return make_pair({"copy-edit": gain}, noise=0.01)


def test_usage_half_again_as_high_for_the_same_text_is_invalid_and_no_gain() -> None:
    base, spec = pair()
    assert judge(base, spec, make_resolved())["word"] == "cannot say"  # two rounds of equal arms
    verdict = judge(base, inflated(spec, 1.5), make_resolved())
    assert verdict["speedup"]["gain"] > 1.4
    assert verdict["word"] == "invalid"
    assert verdict["said"].startswith(
        "usage and the text disagree: 16 answers with the same text in both arms were counted as 2,560 tokens in "
        "baseline and 3,840 tokens in speculative (largest difference: copy-edit-1, round 1)"
    )


def test_a_trillion_tokens_where_32_were_asked_for() -> None:
    base, spec = pair()
    for request in [*inflated(base, 0.2)["requests"], *inflated(spec, 0.2)["requests"]]:
        request.update(max_tokens=32, chunks=32)
    spec["requests"][3]["output_tokens"] = 10**12
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "invalid"
    assert verdict["reasons"][0] == (
        "speculative: usage and max_tokens disagree: 1,000,000,000,000 output tokens, but at most 32 were requested "
        "(first copy-edit-4, round 1; 1 of 16 answers)"
    )
    assert any("1,000,000,000," in said and "bytes of text" in said for said in verdict["reasons"])


def test_more_tokens_than_bytes_of_text() -> None:
    base, spec = pair()
    for result in (base, spec):
        for request in result["requests"]:
            request["text"] = "A text of 20 bytes.\n"
    said = contradictions({"baseline": base, "speculative": spec}, ["copy-edit"])
    assert said == [
        f"{arm}: usage and the text disagree: 2,560 output tokens in 320 bytes of text"
        for arm in ("baseline", "speculative")
    ]
    # Told to go on behind its end, a model makes marks that are not shown.
    base["settings"]["ignore_eos"] = True
    assert arm_contradictions(base) == []


def test_marks_that_are_not_shown_accuse_nobody() -> None:
    base, spec = pair()
    call = [{"name": "get_weather", "arguments": '{"city": "Oslo"}'}]
    for request in [*base["requests"], *spec["requests"]]:
        request.update(text="", tool_calls=call, output_tokens=25, chunks=30)
    assert contradictions({"baseline": base, "speculative": spec}, ["copy-edit"]) == []


def test_usage_below_the_chunks_that_came() -> None:
    base, _ = pair()
    for request in base["requests"]:
        request["output_tokens"] = 80
    assert arm_contradictions(base) == [
        "usage and the stream disagree: 80 output tokens, but 160 chunks with at least one each "
        "(first copy-edit-1, round 1; 16 of 16 answers)"
    ]


def test_usage_against_the_engines_own_timings() -> None:
    base, _ = pair()
    for request in base["requests"]:
        request["timings"] = {"predicted_n": 161}
    assert arm_contradictions(base) == []
    base["requests"][2]["timings"]["predicted_n"] = 240
    assert arm_contradictions(base) == [
        "usage and the engine's timings disagree: 160 output tokens, but 240 (predicted_n) for one answer "
        "(first copy-edit-3, round 1; 1 of 16 answers)"
    ]


def test_usage_against_the_engines_counters() -> None:
    base, spec = pair(2.0)
    entry = {"round": 2, "group": "copy-edit", "counted": {"engine": 1280, "usage": 1280, "answers": 8}}
    spec["counters"] = [entry]
    assert judge(base, spec, make_resolved())["word"] == "pays"
    entry["counted"] = {"engine": 1280, "usage": 1920, "answers": 8}
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "invalid"
    assert verdict["reasons"][0] == (
        "speculative: usage and the engine's counters disagree on copy-edit in round 2: 1,920 output tokens, but the "
        "engine generated 1,280 for the same 8 requests"
    )
    # Of a kind that the verdict is not about it decides nothing.
    entry["group"] = "chat"
    assert judge(base, spec, make_resolved())["word"] == "pays"


def test_usage_against_the_engines_tokenizer() -> None:
    base, _ = pair()
    for request in base["requests"][:3]:
        request["tokenized"] = 150  # a text that is cut into tokens anew
    assert arm_contradictions(base) == []
    for request in base["requests"][:3]:
        request["tokenized"] = 100
    assert arm_contradictions(base) == [
        "usage and the engine's tokenizer disagree: 480 output tokens, but 300 for the same 3 texts"
    ]


@pytest.mark.parametrize("more", [1, SLACK_TOKENS, -1, -SLACK_TOKENS])
def test_a_token_that_ends_the_answer_may_be_counted_or_not(more: int) -> None:
    base, spec = pair(2.0)
    for request in spec["requests"]:
        request["output_tokens"] += more
        request["chunks"] += 1
    spec["counters"] = [{"round": 1, "group": "copy-edit", "counted": {"engine": 1280, "usage": 1296, "answers": 8}}]
    assert judge(base, spec, make_resolved())["word"] == "pays"


def test_of_wrong_answers_the_counts_need_not_be_true() -> None:
    base, spec = make_pair({"copy-edit": 2.0}, prompts=12, text=lambda arm, prompt, number: f"{arm} {prompt}" * 40)
    verdict = judge(base, inflated(spec, 3.0), make_resolved())
    assert verdict["word"] == "does not pay"
    assert verdict["wrong_output"]


def test_the_report_says_what_the_counts_were_not_compared_with() -> None:
    base, spec = pair(2.0)
    assert set(sources_of(spec).values()) == {"the result is too old to contain it"}
    spec["tokenizer"] = {"error": "/tokenize: HTTP 404"}
    report = build_report(base, spec, make_resolved())
    assert report["verdict"]["counts"]["speculative"]["the engine's tokenizer"] == "/tokenize: HTTP 404"
    (line,) = (line for line in report["not_measured"] if "token counts" in line)
    assert line.endswith("and the engine's tokenizer (/tokenize: HTTP 404).")


# ---- who made the tokens: a stranger, or a usage that is too low ---------------------------------------


def snapshot(**traffic: float) -> Data:
    return {"dialect": "vllm", "error": None, "traffic": traffic}


def requests(number: int = 4, **fields: Any) -> list[Data]:
    return [{"status": "ok", "input_tokens": 50, "output_tokens": 100, **fields} for _ in range(number)]


@pytest.mark.parametrize(
    ("ours", "output_tokens"),
    [
        (requests(output_tokens=0, status="no_usage"), 400),
        (requests(output_tokens=20, chunks=100), 400),
        (requests(output_tokens=20, chunks=1, timings={"predicted_n": 100}), 400),
    ],
)
def test_a_usage_of_nothing_or_too_little_is_no_other_client(ours: list[Data], output_tokens: int) -> None:
    before = snapshot(input_tokens=0, output_tokens=0, running=0)
    after = snapshot(input_tokens=200, output_tokens=output_tokens, running=0)
    found = foreign_work(before, after, ours, 100)
    assert found is not None
    assert not found["polluted"], found["said"]


def test_too_low_a_usage_in_as_many_requests_as_ours_is_said_as_that() -> None:
    before = snapshot(requests=0, input_tokens=0, output_tokens=0, running=0)
    after = snapshot(requests=4, input_tokens=200, output_tokens=800, running=0)
    found = foreign_work(before, after, requests(), 400)
    assert found is not None
    assert found["said"] == (
        "usage and the engine's counters disagree: 400 output tokens more than the 400 that our requests account for"
    )
    base, spec = pair(2.0)
    base["counters"] = [
        {"round": 1, "group": "copy-edit", "foreign": found, "counted": token_sums(before, after, requests())}
    ]
    verdict = judge(base, spec, make_resolved())
    assert verdict["word"] == "invalid"
    assert not [said for said in verdict["reasons"] if "another client" in said or "polluted" in said]
    assert verdict["reasons"][0] == (
        "baseline: usage and the engine's counters disagree on copy-edit in round 1: 400 output tokens, but the engine "
        "generated 800 for the same 4 requests"
    )
    # With a request more than ours it is a stranger's, as before.
    after["traffic"]["requests"] = 5
    stranger = foreign_work(before, after, requests(), 400)
    assert stranger is not None
    assert str(stranger["said"]).startswith("another client used the server")


def test_what_is_within_the_slack_of_the_counts_is_a_strangers_as_before() -> None:
    # 30 tokens beyond ours in 20 requests: too much for a health check, too little for a wrong usage.
    ours = requests(20, output_tokens=20)
    before = snapshot(requests=0, input_tokens=0, output_tokens=0, running=0)
    after = snapshot(requests=20, input_tokens=1000, output_tokens=430, running=0)
    found = foreign_work(before, after, ours, 100)
    assert found is not None
    assert str(found["said"]).startswith("another client used the server: 30 output tokens more than the 400")


def test_a_request_that_was_cut_off_may_have_cost_all_that_it_asked_for() -> None:
    cut = requests(status="cut_off", output_tokens=None, chunks=3)
    found = foreign_work(snapshot(output_tokens=0, running=0), snapshot(output_tokens=400, running=0), cut, 100)
    assert found is not None
    assert not found["polluted"], found["said"]


def test_what_cannot_be_counted_is_not() -> None:
    before, after = snapshot(output_tokens=0, running=0), snapshot(output_tokens=400, running=0)
    assert token_sums(before, after, requests()) == {"engine": 400, "usage": 400, "answers": 4}
    assert token_sums(before, snapshot(output_tokens=400, running=1), requests()) is None
    assert token_sums(before, after, requests(status="failed")) is None
    assert token_sums(after, before, requests()) is None
    assert token_sums(snapshot(), snapshot(), requests()) is None
    assert token_sums(before, after, []) is None


def test_the_least_that_a_request_made() -> None:
    made: Any = {"output_tokens": 5, "chunks": 9}
    assert least_generated(NOTHING) == 0
    assert least_generated(made) == 9
    assert least_generated(made | {"tool_calls": [{}]}) == 5


def test_results_of_earlier_versions_are_judged_as_they_are() -> None:
    base, spec = copy.deepcopy(pair(2.0))
    for result in (base, spec):
        for request in result["requests"]:
            for name in ("max_tokens", "tokenized", "chunks", "timings", "tool_calls"):
                request.pop(name, None)
    assert judge(base, spec, make_resolved())["word"] == "pays"
    assert sources_of(base)["max_tokens"] == "the result is too old to contain it"
