"""Counters of several engines behind one front: their sum, who is missing, and who was started anew."""

from __future__ import annotations

from typing import Any

from drafthouse.bench.result_types import CounterPair, Request, Snapshot
from drafthouse.bench.spec_metrics import difference, parse_counters, parse_start, unreadable
from drafthouse.bench.worker_counters import missing, replica_steps, restarted, summed, uncounted

VLLM = """vllm:spec_decode_num_drafts_total 10
vllm:spec_decode_num_draft_tokens_total 30
vllm:spec_decode_num_accepted_tokens_total 15
"""


def worker(drafts: int, tokens: float, requests: float, started_unix_s: float | None = 1.0) -> Snapshot:
    text = (
        f"vllm:spec_decode_num_drafts_total {drafts}\n"
        f"vllm:spec_decode_num_draft_tokens_total {3 * drafts}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {2 * drafts}\n"
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {drafts}\n'
    )
    found = parse_counters(text) | {"traffic": {"output_tokens": tokens, "requests": requests, "running": 0.0}}
    if started_unix_s is not None:
        found["started_unix_s"] = started_unix_s
    return found


def pair(before: dict[str, Snapshot], after: dict[str, Snapshot]) -> CounterPair:
    return {"before": summed(before), "after": summed(after)}


def answers(tokens: int, number: int, replica: str = "", status: str = "ok") -> list[Request]:
    one: Any = {"status": status, "output_tokens": tokens, "replica": replica}
    return [one] * number


def test_the_sum_of_what_each_did() -> None:
    both = pair({"a": worker(10, 100, 2), "b": worker(50, 500, 9)}, {"a": worker(20, 200, 4), "b": worker(80, 900, 19)})
    moved = difference(both["before"], both["after"])
    assert moved == {"num_drafts": 40, "draft_tokens": 120, "accepted_tokens": 80, "per_position": [40]}
    assert both["after"]["traffic"] == {"output_tokens": 1100.0, "requests": 23.0, "running": 0.0}
    drafted = {name: difference(both["before"]["workers"][name], both["after"]["workers"][name]) for name in ("a", "b")}
    requests = [*answers(100, 1, "a"), *answers(40, 9, "b"), *answers(0, 1, "b", "cut_off")]
    a, b = replica_steps(both, drafted, requests, 10.0)
    assert (a["name"], a["requests"], a["output_tokens"], a["output_throughput"], a["failed"]) == ("a", 2, 100, 10.0, 0)
    assert (b["name"], b["requests"], b["draft_tokens"], b["accepted_tokens"], b["failed"]) == ("b", 10, 90, 60, 1)
    assert (a["said"], b["said"]) == (None, None)
    assert restarted(both) == []


def test_failures_are_nobody_s_where_the_front_names_nobody() -> None:
    both = pair({"a": worker(1, 10, 1)}, {"a": worker(2, 20, 2)})
    (one,) = replica_steps(both, {}, answers(10, 1, "", "failed"), 1.0)
    assert one["failed"] is None


def test_a_missing_worker_is_said_and_in_no_sum() -> None:
    gone = unreadable("http://b/metrics: HTTP 502")
    for both in (
        pair({"a": worker(10, 100, 2), "b": worker(5, 50, 1)}, {"a": worker(20, 200, 4), "b": gone}),
        pair({"a": worker(10, 100, 2), "b": gone}, {"a": worker(20, 200, 4), "b": worker(5, 50, 1)}),
    ):
        assert missing(both) == {"b": "http://b/metrics: HTTP 502"}
        moved = difference(both["before"], both["after"])
        assert moved is not None
        assert moved["draft_tokens"] == 30
        # What a stranger asked cannot be told from what the missing one did.
        assert "traffic" not in both["before"] or "traffic" not in both["after"]
        assert restarted(both) == []
        assert uncounted(both, answers(1000, 5)) is None
        assert replica_steps(both, {}, [], 1.0)[1]["said"] == "http://b/metrics: HTTP 502"
    nobody = summed({"a": gone, "b": gone})
    assert nobody["error"]
    assert difference(nobody, nobody) is None


def test_a_worker_that_was_started_anew() -> None:
    a = worker(10, 100, 2), worker(20, 200, 4)
    fell = pair({"a": a[0], "b": worker(50, 500, 9, None)}, {"a": a[1], "b": worker(5, 50, 1, None)})
    assert restarted(fell) == ["b"]
    # The sum has only grown where the other did more.
    assert difference(fell["before"], fell["after"]) is None
    beyond = pair({"a": a[0], "b": worker(5, 50, 1, 7.0)}, {"a": a[1], "b": worker(50, 500, 9, 8.0)})
    assert restarted(beyond) == ["b"]
    assert replica_steps(beyond, {}, [], 1.0)[1]["requests"] is None


def test_a_start_that_only_the_answers_tell() -> None:
    both = pair({"a": worker(5, 50, 1, None)}, {"a": worker(30, 300, 6, None)})
    assert restarted(both) == []
    assert uncounted(both, answers(50, 5)) is None
    said = uncounted(both, answers(50, 8))
    assert said is not None
    assert said.startswith(
        "the engines counted 250 output tokens, but the answers contain 400: an engine was restarted"
    )


def test_engines_of_two_kinds_have_no_common_dialect() -> None:
    both = summed({"a": worker(1, 10, 1), "b": parse_counters("llamacpp:tokens_predicted_total 5\n")})
    assert both["dialect"] is None
    assert both["error"] is None


def test_when_a_process_started() -> None:
    assert dict(parse_start("process_start_time_seconds 1.7e9\n" + VLLM)) == {"started_unix_s": 1.7e9}
    assert dict(parse_start(VLLM)) == {}
