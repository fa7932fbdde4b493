"""A chat request of a measurement, as plain data. Code that only plans requests need not import the HTTP client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Gate, Message, RequestFields, ResponseFormat, Tool


@dataclass(frozen=True)
class Ask:
    """A chat request to send."""

    suite: str
    kind: str
    group: str  # the prompt kind at one temperature (`groups.group_key`)
    prompt_id: str
    messages: Sequence[Message]
    output_tokens: int  # at most
    temperature: float = 0.0
    round: int = 1
    seed: int | None = None
    ignore_eos: bool = False
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None
    extra: RequestFields | None = None
    """Further fields of the request body: tool_choice, chat_template_kwargs, ..."""
    gate: Gate | None = None
    """The check of the answer (does it still say the right thing?); it is not sent to the server."""
    stream: bool = True
    """True if the answer is streamed. Of one that is not, only the time of its end can be measured."""

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
            # The server has to count the tokens: with speculation one chunk carries several.
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
