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
class Ask:
    """A chat request to send: what it asks (sent to the server), and where it stands in the measurement (not sent)."""

    suite: str  # name of the file of prompts
    kind: str  # prompt kind of that suite, such as "code"
    group: str  # the kind at one temperature, as named by `groups.group_key`
    prompt_id: str  # unique in its kind
    messages: Sequence[Message]
    output_tokens: int  # the most that the answer may have; sent as `max_tokens`
    temperature: float = 0.0
    round: int = 1  # number of the round, from 1
    seed: int | None = None  # of the sampling; None: the server chooses
    ignore_eos: bool = False  # True: generate up to the maximum, past the token that ends the answer
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None  # the JSON schema of the answer; None: free text
    extra: RequestFields | None = None  # further fields of the body: tool_choice, chat_template_kwargs, ...
    gate: Gate | None = None  # the check of the answer, such as a text that it must contain; not sent
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
            # The server has to count the tokens, because with speculation one chunk carries several.
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
