"""Bytes with arrival times become events, and events become tokens' arrivals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.bench.sse import Answer, read_answer, says_done, split_events


def stream(*reads: tuple[float, bytes]) -> tuple[bytes, list[float], list[int]]:
    """Reads as the client records them."""
    body, ends = b"", []
    for _, data in reads:
        body += data
        ends.append(len(body))
    return body, [time for time, _ in reads], ends


def answer(*documents: tuple[float, Any]) -> Answer:
    reads = [
        (time, b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n")
        for time, one in documents
    ]
    return read_answer(split_events(*stream(*reads)))


def delta(**fields: Any) -> Any:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_an_event_has_arrived_when_its_blank_line_has() -> None:
    events = split_events(*stream((1.0, b"data: a\n"), (2.0, b"\ndata: b\n\nda"), (3.0, b"ta: c"), (4.0, b"\n\n")))
    assert [(event.time_s, event.data) for event in events] == [(2.0, "a"), (2.0, "b"), (4.0, "c")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_of_the_standard(end: bytes) -> None:
    body = end.join(
        [b": a comment", b"event: note", b"id: 7", b"data: one", b"data:two", b"", b"data: three", b"", b""]
    )
    events = split_events(*stream((1.0, body)))
    assert [(event.name, event.data) for event in events] == [("note", "one\ntwo"), ("message", "three")]


def test_a_last_event_without_its_blank_line_is_kept() -> None:
    events = split_events(*stream((1.0, b"data: a\n\n"), (2.0, b"data: [DONE]")))
    assert [(event.time_s, event.data) for event in events] == [(1.0, "a"), (2.0, "[DONE]")]


def test_nothing_gives_no_events() -> None:
    assert split_events(b"", [], []) == []
    assert read_answer([]) == Answer()


def test_a_byte_order_mark_belongs_to_no_line() -> None:
    mark = b"\xef\xbb\xbf"
    events = split_events(*stream((1.0, mark[:2]), (2.0, mark[2:] + b"data: a\n\n"), (3.0, b"data: b\n\n")))
    assert [(event.time_s, event.data) for event in events] == [(2.0, "a"), (3.0, "b")]


@pytest.mark.parametrize(
    ("body", "new", "done"),
    [
        (b"data: a\n\ndata: [DONE]\n\n", 14, True),
        (b"data: a\r\n\r\ndata:[DONE]", 3, True),
        (b"data: [DONE]", 12, True),
        (b"data: a\n\ndata: [DONE", 5, False),
        (b'data: {"content": "data: [DONE]"}\n\n', 36, False),
        # What was looked at before is not looked at again.
        (b"data: [DONE]\n\n" + b": still here\n\n" * 4, 14, False),
    ],
)
def test_done_on_a_line_of_its_own(body: bytes, new: int, done: bool) -> None:
    assert says_done(bytearray(body), new) is done


def test_a_character_cut_in_two_reads_is_whole_again() -> None:
    data = b"data: " + json.dumps(delta(content="grün"), ensure_ascii=False).encode() + b"\n\n"
    cut = data.index("ü".encode()) + 1
    assert read_answer(split_events(*stream((1.0, data[:cut]), (2.0, data[cut:])))).text == "grün"


def test_separators_inside_a_string_are_no_line_ends() -> None:
    data = b"data: " + json.dumps(delta(content="a\u2028b\x85c"), ensure_ascii=False).encode() + b"\n\n"
    assert read_answer(split_events(*stream((1.0, data)))).text == "a\u2028b\x85c"


def test_an_early_role_chunk_is_no_token() -> None:
    for empty in ("", None):
        got = answer((1.0, delta(role="assistant", content=empty)), (2.0, delta(content="Hi")), (3.0, b"[DONE]"))
        assert got.token_times_s == [2.0]
        assert got.first_answer_s == 2.0
        assert got.done


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_counts_as_tokens_and_the_answer_is_timed_apart(name: str) -> None:
    got = answer((1.0, delta(**{name: "let me"})), (2.0, delta(**{name: " think"})), (3.0, delta(content="Yes")))
    assert got.token_times_s == [1.0, 2.0, 3.0]
    assert got.first_answer_s == 3.0
    assert (got.reasoning_text, got.text) == ("let me think", "Yes")


def test_reasoning_under_both_names_is_read_once() -> None:
    got = answer((1.0, delta(reasoning="hm", reasoning_content="hm")))
    assert (got.reasoning_text, got.first_answer_s) == ("hm", None)


def test_a_tool_call_is_an_answer() -> None:
    got = answer((1.0, delta(reasoning="hm")), (2.0, delta(content=None, tool_calls=[{"index": 0, "function": {}}])))
    assert got.token_times_s == [1.0, 2.0]
    assert got.first_answer_s == 2.0


def test_the_last_usage_counts_and_a_usage_chunk_is_no_token() -> None:
    early = {**delta(content="a"), "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    tail = {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}},
    }
    got = answer((1.0, early), (2.0, delta(content="bc")), (3.0, tail), (4.0, tail))
    assert (got.input_tokens, got.output_tokens, got.cached_tokens) == (9, 3, 8)
    assert got.token_times_s == [1.0, 2.0]


def test_usage_null_in_every_chunk_and_no_usage_at_all() -> None:
    assert answer((1.0, {**delta(content="a"), "usage": None})).output_tokens is None


def test_figures_of_the_engines() -> None:
    spec = {"num_spec_steps": 4, "num_draft_tokens": 12}
    timings = {"predicted_n": 5, "draft_n": 4, "draft_n_accepted": 3}
    got = answer(
        (1.0, {"choices": [{"delta": {"content": "a"}, "avg_decoded_tokens_per_iter": 2.5}]}),
        (2.0, {"choices": [{"delta": {}, "finish_reason": "length"}], "timings": timings}),
        (3.0, {"choices": [], "usage": {"completion_tokens": 5}, "metrics": {"speculative_decoding": spec}}),
    )
    assert got.avg_decoded_tokens_per_iter == 2.5
    assert got.timings == timings
    assert got.spec_metrics == spec
    assert got.finish_reason == "length"
    # SGLang's chunk behind the last token (0.5.23, serving_chat.py), in vLLM's words.
    details = {"spec_accept_rate": 0.5, "spec_num_proposed_drafts": 12, "spec_verify_ct": 4, "spec_cap_length": 0.0}
    chunk = {"choices": [], "sglext": {"routed_experts": None, "spec_tokens_details": details}}
    assert answer((1.0, chunk)).spec_metrics == {"num_draft_tokens": 12, "num_spec_steps": 4}
    assert answer((1.0, {"choices": [], "sglext": {"spec_tokens_details": [details]}})).spec_metrics is None


@pytest.mark.parametrize(
    "bad",
    [{"num_draft_tokens": "x"}, {"num_spec_steps": -1}, {"num_draft_tokens": 3, "num_accepted_draft_tokens": 4},
     {"acceptance_histogram": 7}, {"acceptance_histogram": [1, float("nan")]}],
)  # fmt: skip
def test_counts_of_drafts_that_cannot_be_are_not_kept(bad: Any) -> None:
    chunk = {"choices": [], "metrics": {"speculative_decoding": {"num_spec_steps": 4, "num_draft_tokens": 12, **bad}}}
    assert answer((1.0, chunk)).spec_metrics is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'data: {"error": {"message": "out of memory", "code": 500}}\n\n', "out of memory"),
        (b'data: {"error": "out of memory"}\n\n', "out of memory"),
        (b'error: {"message": "out of memory"}\n\n', "out of memory"),
        (b'event: error\ndata: {"message": "out of memory"}\n\n', "out of memory"),
        (b"data: <html>\n\n", "an event that is not JSON: <html>"),
        (b"data: [1]\n\n", "an event that is not a JSON object: [1]"),
    ],
)
def test_errors_inside_a_stream(data: bytes, error: str) -> None:
    assert read_answer(split_events(*stream((1.0, data)))).error == error


def pieces(*calls: list[Any]) -> list[Any]:
    """The calls of an answer whose chunks carried these pieces of calls."""
    chunks = [(float(n), delta(tool_calls=one)) for n, one in enumerate(calls)]
    return answer(*chunks).tool_calls


def test_a_tool_call_comes_in_pieces() -> None:
    first = {"index": 0, "id": "a", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"ci', 'ty": "Os', 'lo"}')]
    assert pieces([first], *[[one] for one in rest]) == [{"name": "get_weather", "arguments": '{"city": "Oslo"}'}]
    # Several pieces in one chunk, as a server that drafts sends them.
    assert pieces([first, rest[0]], rest[1:]) == [{"name": "get_weather", "arguments": '{"city": "Oslo"}'}]


def test_two_calls_are_kept_apart_by_their_index_or_by_their_names() -> None:
    def piece(name: str | None, arguments: str | None, **index: int) -> Any:
        return {**index, "function": {"name": name, "arguments": arguments}}

    wanted = [{"name": "a", "arguments": "{1}"}, {"name": "b", "arguments": "{2}"}]
    assert pieces([piece("a", "{1", index=0), piece("b", "{2", index=1)], [piece(None, "}", index=0)],
                  [piece(None, "}", index=1)]) == wanted  # fmt: skip
    assert pieces([piece("a", "{1")], [piece(None, "}")], [piece("b", "{2")], [piece(None, "}")]) == wanted
    # An index that counts from 1, and a name that is said with every piece.
    assert pieces([piece("a", "{1}", index=1)], [piece("b", "{2}", index=2)]) == wanted
    assert pieces([piece("a", "{1", index=0)], [piece("a", "}", index=0)]) == wanted[:1]


def test_odd_tool_calls_break_nothing() -> None:
    assert pieces([{"function": {"name": "a", "arguments": {"x": 1}}}]) == [{"name": "a", "arguments": '{"x": 1}'}]
    assert pieces([{"index": 7}], [{"index": -1, "function": None}]) == [{"name": None, "arguments": ""}]
    assert answer((1.0, delta(tool_calls=["text"]))).tool_calls == []
    assert answer((1.0, delta(tool_calls={"index": 0}))).tool_calls == []


def test_how_many_characters_each_piece_carried() -> None:
    got = answer(
        (1.0, delta(role="assistant", content="")),
        (2.0, delta(reasoning="let me")),
        (3.0, delta(content="gr\u00fcn")),
        (4.0, delta(content=" ist es")),
    )
    assert (got.reasoning_pieces, got.text_pieces) == ([6], [4, 7])
