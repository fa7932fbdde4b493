"""Parse the server-sent events of an OpenAI-compatible server into an answer with arrival times.

The client only records raw bytes and arrival times while a stream runs. They are parsed after the stream has ended, so
that parsing one stream never delays the timing of another.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drafthouse.bench.result_types import ToolCall

# The three line ends of the standard (WHATWG HTML, "server-sent events").
_LINE_END = re.compile(rb"\r\n|\n|\r")
# The same standard ignores a byte order mark at the beginning of a stream.
_MARK = b"\xef\xbb\xbf"
_DONE_LINE = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?data: ?\[DONE\]")
#: Bytes before the last read that may belong to the `[DONE]` line: a line end, byte order mark, `data: ` and `[DONE`.
_DONE_BEFORE = 16
#: SGLang's keys of draft statistics in an answer (`srt/entrypoints/openai/protocol.py`), and vLLM's keys for the same.
_SGLANG_NAMES = {
    "spec_verify_ct": "num_spec_steps",
    "spec_num_proposed_drafts": "num_draft_tokens",
    "spec_num_correct_drafts": "num_accepted_draft_tokens",
    "spec_correct_drafts_histogram": "acceptance_histogram",
}
#: An answer's counts of its drafts, by their names in vLLM.
DRAFT_COUNTS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
#: Token counts above this are ignored as invalid; no context is that large.
MOST_TOKENS = 10**9
# vLLM and TensorRT-LLM call the field `reasoning` since 2025; older versions and llama.cpp `reasoning_content`.
_REASONING = ("reasoning", "reasoning_content")


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    time_s: float  # when its last byte arrived, in seconds of the client's clock
    name: str  # "message" if the event has no name
    data: str  # the lines of its data, without "data:"


@dataclass
class Answer:
    """The content of one stream. Times are seconds of the client's clock; None means that the stream had no value."""

    token_times_s: list[float] = field(default_factory=list)  # arrival of each chunk with tokens, one or several
    first_answer_s: float | None = None  # arrival of the first token that is not reasoning: content or a tool call
    text: str = ""
    reasoning_text: str = ""
    text_pieces: list[int] = field(default_factory=list)  # characters of text in each chunk that has text
    reasoning_pieces: list[int] = field(default_factory=list)  # the same for the reasoning
    tool_calls: list[ToolCall] = field(default_factory=list)  # in order
    finish_reason: str | None = None
    done: bool = False  # True if the stream had its `[DONE]`
    error: str | None = None  # the first error in the stream, in full length
    input_tokens: int | None = None  # by the server's usage, as the next two
    output_tokens: int | None = None
    cached_tokens: int | None = None  # prompt tokens from the engine's prefix cache
    timings: dict[str, Any] | None = None  # llama.cpp's token counts and times of the request
    avg_decoded_tokens_per_iter: float | None = None  # TensorRT-LLM's mean number of output tokens per engine step
    spec_metrics: dict[str, Any] | None = None  # vLLM's `metrics.speculative_decoding`; SGLang's under vLLM's keys


def says_done(body: bytes | bytearray, new_bytes: int) -> bool:
    """True if the last ``new_bytes`` of a stream contain, or complete, a line `data: [DONE]`.

    The client calls it after each read that may hold this line. A text that quotes `[DONE]` is inside a line of JSON.
    """
    return _DONE_LINE.search(body, max(0, len(body) - new_bytes - _DONE_BEFORE)) is not None


def split_events(body: bytes, times_s: Sequence[float], ends: Sequence[int]) -> list[Event]:
    """The events of a stream, in order.

    ``ends[i]`` is the length of ``body`` after read i, and ``times_s[i]`` the time (seconds) at which that read
    returned. The time of an event is that of the blank line after it. A last event without its blank line
    gets the time of the last read, because some servers close the stream right after `[DONE]`.
    """
    events: list[Event] = []
    name = "message"
    data: list[str] = []
    start = len(_MARK) if body.startswith(_MARK) else 0
    read_index = 0  # of the read that brought the last byte of the event
    for end in _LINE_END.finditer(body):
        line = body[start : end.start()]
        start = end.end()
        if line:
            name = _field(line, name, data)
        else:
            if data:
                while ends[read_index] < start:
                    read_index += 1
                events.append(Event(times_s[read_index], name, "\n".join(data)))
            name = "message"
            data = []
    if start < len(body):
        name = _field(body[start:], name, data)
    if data:
        events.append(Event(times_s[-1], name, "\n".join(data)))
    return events


def _field(line: bytes, name: str, data: list[str]) -> str:
    """Append the data of one line to ``data``; return the event's name, which the line may set."""
    key, _, value = line.decode("utf-8", "replace").partition(":")
    value = value.removeprefix(" ")
    if key == "data":
        data.append(value)
    elif key == "event":
        return value
    elif key == "error":  # llama.cpp before 2026 sent errors in a field of this name
        data.append(value)
        return "error"
    return name  # comments (an empty key), `id` and `retry` are ignored: they carry no tokens


def events_of_body(body: bytes, time_s: float) -> list[Event]:
    """The body of an answer that was not streamed, as two events: the whole answer, then `[DONE]`."""
    return [Event(time_s, "message", body.decode("utf-8", "replace")), Event(time_s, "message", "[DONE]")]


def read_answer(events: Sequence[Event]) -> Answer:
    """The answer that a stream's events contain.

    A role chunk with empty content counts as no token. Usage may come several times; the last one counts.
    Data that is no JSON object becomes the answer's ``error`` in full length. The caller removes the API
    key from it before it is shortened, as half a key would not be recognised.
    """
    answer = Answer()
    for event in events:
        if event.data.strip() == "[DONE]":
            answer.done = True
            continue
        try:
            document = json.loads(event.data)
        except (ValueError, RecursionError):
            answer.error = answer.error or f"an event that is not JSON: {event.data}"
            continue
        if not isinstance(document, dict):
            answer.error = answer.error or f"an event that is not a JSON object: {event.data}"
            continue
        _read_document(document, event, answer)
    return answer


def _read_document(document: Mapping[str, Any], event: Event, answer: Answer) -> None:
    """Add an event's JSON object to the answer: an error alone, or else usage, statistics and choices."""
    problem = document.get("error")
    if problem or event.name == "error":
        message = problem.get("message") if isinstance(problem, dict) else problem
        answer.error = answer.error or str(message or document.get("message") or event.data)
        return
    usage = document.get("usage")
    if isinstance(usage, dict):
        answer.input_tokens = _token_count(usage.get("prompt_tokens"))
        answer.output_tokens = _token_count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        answer.cached_tokens = None
        if isinstance(details, dict):
            answer.cached_tokens = _token_count(details.get("cached_tokens"))
    if isinstance(document.get("timings"), dict):
        answer.timings = document["timings"]
    _read_spec_metrics(document, answer)
    carried = False
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if not isinstance(choice, dict):
            continue
        _read_spec_metrics(choice, answer)
        carried = _read_choice(choice, event.time_s, answer) or carried
    if carried:
        answer.token_times_s.append(event.time_s)


def _read_choice(choice: Mapping[str, Any], time_s: float, answer: Answer) -> bool:
    """Add a choice to the answer; return True if it carried tokens."""
    if choice.get("finish_reason"):
        answer.finish_reason = str(choice["finish_reason"])
    average = choice.get("avg_decoded_tokens_per_iter")
    if isinstance(average, float) and math.isfinite(average):
        answer.avg_decoded_tokens_per_iter = average
    elif type(average) is int and 0 <= average <= MOST_TOKENS:
        answer.avg_decoded_tokens_per_iter = float(average)
    # An answer that was not streamed has `message` instead of `delta`.
    delta = choice.get("delta", choice.get("message"))
    if not isinstance(delta, dict):
        return False
    content = delta.get("content")
    # The first of the two keys that is set is read, in case a server sends the same text in both.
    reasoning = next((delta[key] for key in _REASONING if delta.get(key)), None)
    answered = bool(content) or bool(delta.get("tool_calls"))
    if isinstance(content, str) and content:
        answer.text += content
        answer.text_pieces.append(len(content))
    if isinstance(reasoning, str):
        answer.reasoning_text += reasoning
        answer.reasoning_pieces.append(len(reasoning))
    if isinstance(delta.get("tool_calls"), list):
        _read_calls(delta["tool_calls"], answer.tool_calls)
    if answered and answer.first_answer_s is None:
        answer.first_answer_s = time_s
    return answered or bool(reasoning)


def _read_calls(pieces: Sequence[object], calls: list[ToolCall]) -> None:
    """Append the pieces of tool calls to ``calls`` by their index; a piece without one belongs to the last call.

    The name is taken from the first piece of a call that has one. The arguments come in several pieces of
    text, which are joined; arguments that come as an object are converted to JSON.
    """
    for piece in pieces:
        if not isinstance(piece, dict):
            continue
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        index = piece.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= len(calls):
            index = len(calls)
            if calls and not function.get("name"):
                index -= 1
        if index == len(calls):
            calls.append({"name": None, "arguments": ""})
        call = calls[index]
        if isinstance(function.get("name"), str) and function["name"]:
            call["name"] = call["name"] or function["name"]
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call["arguments"] += arguments
        elif arguments is not None:
            call["arguments"] += json.dumps(arguments)


def _read_spec_metrics(document: Mapping[str, Any], answer: Answer) -> None:
    """Add vLLM's or SGLang's statistics of drafts to the answer, if the object has plausible ones."""
    metrics = document.get("metrics")
    if isinstance(metrics, dict) and _has_draft_counts(metrics.get("speculative_decoding")):
        answer.spec_metrics = metrics["speculative_decoding"]
    extension = document.get("sglext")
    details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    if isinstance(details, dict):
        named = {name: details[key] for key, name in _SGLANG_NAMES.items() if key in details}
        if _has_draft_counts(named):
            answer.spec_metrics = named


def _has_draft_counts(metrics: object) -> bool:
    """True for an object whose counts are valid, with no more accepted than drafted tokens; counts may be missing."""
    if not isinstance(metrics, dict):
        return False
    counts: dict[str, int] = {}
    for name in DRAFT_COUNTS:
        if name in metrics:
            count = _token_count(metrics[name])
            if count is None:
                return False
            counts[name] = count
    histogram = metrics.get("acceptance_histogram") or []
    if not isinstance(histogram, list) or None in map(_token_count, histogram):
        return False
    return counts.get("num_accepted_draft_tokens", 0) <= counts.get("num_draft_tokens", MOST_TOKENS)


def _token_count(value: object) -> int | None:
    """``value`` if it is a valid token count, otherwise None."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
