"""A chat request that a measurement is to send, as plain data.

It has a file of its own, so that code which only plans requests does not import the HTTP client (`client.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Gate, Message, RequestFields, ResponseFormat, Tool


@dataclass(frozen=True)
class ChatRequest:
    """A chat request to send, and its place in the measurement."""

    # Its place in the measurement; not sent.
    suite: str  # name of the file of prompts
    kind: str  # prompt kind of that suite, such as "code"
    group: str  # the kind and, above temperature 0, the temperature (`groups.group_key`), such as "code@0.7"
    prompt_id: str  # unique in its kind
    # What is sent, except ``round`` and ``gate``.
    messages: Sequence[Message]
    output_tokens: int  # the maximum length of the answer; sent as `max_tokens`
    temperature: float = 0.0
    round: int = 1  # number of the round, from 1; not sent
    seed: int | None = None  # of the sampling; None: the server chooses
    ignore_eos: bool = False  # True: generate up to the maximum, past the end-of-sequence token
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None  # the JSON schema of the answer; None: free text
    extra: RequestFields | None = None  # further fields of the body: tool_choice, chat_template_kwargs, ...
    gate: Gate | None = None  # the check that the answer must pass, such as a text that it must contain; not sent
    stream: bool = True  # False: the answer comes in one piece, so only its end can be timed

    def body(self, model: str) -> RequestFields:
        """The JSON body of the request to `/v1/chat/completions`; ``extra`` overrides the other fields."""
        body: RequestFields = {
            "model": model,
            "messages": list(self.messages),
            "max_tokens": self.output_tokens,
            "temperature": self.temperature,
            "stream": self.stream,
        }
        if self.stream:
            # Ask the server to count the tokens: with speculation a chunk may carry several.
            body["stream_options"] = {"include_usage": True}
        if self.seed is not None:
            body["seed"] = self.seed
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.tools:
            body["tools"] = list(self.tools)
        if self.response_format:
            body["response_format"] = dict(self.response_format)
        return {**body, **(self.extra or {})}
