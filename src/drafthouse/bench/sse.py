"""Server-sent events with the time each one arrived, and what an OpenAI-compatible server says in them.

Pure: the client records raw bytes and arrival times while a stream runs, and this reads them after it
has ended, so that parsing one stream never delays the clock of another.
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
# A byte order mark at the beginning of a stream belongs to its encoding, not to its first line (the same standard).
_MARK = b"\xef\xbb\xbf"
_DONE_LINE = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?data: ?\[DONE\]")
#: The longest that can be in front of `[DONE]` on its line, with the end of the line before it, in bytes.
_DONE_BEFORE = 16
#: SGLang's names for what vLLM tells of drafting in an answer (`srt/entrypoints/openai/protocol.py`).
_SGLANG_NAMES = {
    "spec_verify_ct": "num_spec_steps",
    "spec_num_proposed_drafts": "num_draft_tokens",
    "spec_num_correct_drafts": "num_accepted_draft_tokens",
    "spec_correct_drafts_histogram": "acceptance_histogram",
}
#: Tokens of one request at most: no context is larger.
MOST_TOKENS = 10**9
# vLLM and TensorRT-LLM since 2025 say `reasoning`, older ones and llama.cpp say `reasoning_content`.
_REASONING = ("reasoning", "reasoning_content")


@dataclass(frozen=True)
class Event:
    """One event: when its last byte arrived (seconds of the client's clock), its name and its data."""

    time_s: float
    name: str
    data: str


@dataclass
class Answer:
    """What one stream said. Times in seconds of the client's clock; None where it never came."""

    token_times_s: list[float] = field(default_factory=list)
    """When each chunk that carried tokens arrived. A chunk may carry several tokens."""
    first_answer_s: float | None = None
    """When the first token arrived that is not reasoning: content or a tool call."""
    text: str = ""
    reasoning_text: str = ""
    text_pieces: list[int] = field(default_factory=list)
    """How many characters of text each chunk carried, and the same of reasoning."""
    reasoning_pieces: list[int] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    """{name, arguments} of each call in order, the arguments as the text that came."""
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Input tokens that the engine had in its prefix cache (`prompt_tokens_details.cached_tokens`)."""
    timings: dict[str, Any] | None = None
    """llama.cpp's own figures for the request."""
    avg_decoded_tokens_per_iter: float | None = None
    """TensorRT-LLM's mean number of tokens for each step of the engine."""
    spec_metrics: dict[str, Any] | None = None
    """vLLM's `metrics.speculative_decoding` (`--per-request-spec-decode-metrics`), and SGLang's under these names."""


def says_done(body: bytes | bytearray, new: int) -> bool:
    """Whether `[DONE]` stands on a line of its own in the last ``new`` bytes of a stream, or ends in them.

    For the client, after a read that may hold it: text that merely quotes the word stands inside a line of JSON.
    """
    return _DONE_LINE.search(body, max(0, len(body) - new - _DONE_BEFORE)) is not None


def split_events(body: bytes, times_s: Sequence[float], ends: Sequence[int]) -> list[Event]:
    """The events of a stream, in order.

    ``ends[i]`` is the length of ``body`` after read number i, ``times_s[i]`` (seconds) when that read
    returned. An event has arrived when the blank line after it has. A last event without its blank line
    is kept, with the time of the last read: some servers close the stream right after `[DONE]`.
    """
    found: list[Event] = []
    name, data = "message", list[str]()
    start, read = len(_MARK) if body.startswith(_MARK) else 0, 0
    for end in _LINE_END.finditer(body):
        line = body[start : end.start()]
        start = end.end()
        if line:
            name = _field(line, name, data)
        else:
            if data:
                while ends[read] < start:
                    read += 1
                found.append(Event(times_s[read], name, "\n".join(data)))
            name, data = "message", []
    if start < len(body):
        name = _field(body[start:], name, data)
    if data:
        found.append(Event(times_s[-1], name, "\n".join(data)))
    return found


def _field(line: bytes, name: str, data: list[str]) -> str:
    """Take one line into the event being read; return the event's name."""
    key, _, value = line.decode("utf-8", "replace").partition(":")
    value = value.removeprefix(" ")
    if key == "data":
        data.append(value)
    elif key == "event":
        return value
    elif key == "error":  # llama.cpp before 2026 wrote errors as a field of this name
        data.append(value)
        return "error"
    return name  # comments (an empty key), id and retry carry no tokens


def one_event(body: bytes, time_s: float) -> list[Event]:
    """An answer that came as a whole, as the events of a stream that carried all of it at once."""
    return [Event(time_s, "message", body.decode("utf-8", "replace")), Event(time_s, "message", "[DONE]")]


def read_answer(events: Sequence[Event]) -> Answer:
    """What the events say.

    A role chunk with empty content is no token. Usage may come once, twice or with every chunk: the last
    one counts. Data that is no JSON object makes the answer's ``error``, whole: whoever keeps it takes the key
    out of it before it is cut.
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
    problem = document.get("error")
    if problem or event.name == "error":
        message = problem.get("message") if isinstance(problem, dict) else problem
        answer.error = answer.error or str(message or document.get("message") or event.data)
        return
    usage = document.get("usage")
    if isinstance(usage, dict):
        answer.input_tokens = _count(usage.get("prompt_tokens"))
        answer.output_tokens = _count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        answer.cached_tokens = None
        if isinstance(details, dict):
            answer.cached_tokens = _count(details.get("cached_tokens"))
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
    """Take one choice; return whether it carried tokens."""
    if choice.get("finish_reason"):
        answer.finish_reason = str(choice["finish_reason"])
    average = choice.get("avg_decoded_tokens_per_iter")
    if isinstance(average, float) and math.isfinite(average):
        answer.avg_decoded_tokens_per_iter = average
    elif type(average) is int and 0 <= average <= MOST_TOKENS:
        answer.avg_decoded_tokens_per_iter = float(average)
    # An answer that was not asked for as a stream has all of it in its message.
    delta = choice.get("delta", choice.get("message"))
    if not isinstance(delta, dict):
        return False
    content = delta.get("content")
    # Only one of the two names is read, in case a server sends both with the same text.
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
    """Put the pieces of tool calls where their index says; one without an index belongs to the last call.

    The name comes once, in the first piece of a call (a server that repeats it says the same again); the
    arguments come in parts. A server that sends them as an object instead of text is written out as JSON.
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
    metrics = document.get("metrics")
    if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
        answer.spec_metrics = metrics["speculative_decoding"]
    extension = document.get("sglext")
    details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    if isinstance(details, dict):
        answer.spec_metrics = {ours: details[theirs] for theirs, ours in _SGLANG_NAMES.items() if theirs in details}


def _count(value: object) -> int | None:
    """A number of tokens, or None for anything else."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
