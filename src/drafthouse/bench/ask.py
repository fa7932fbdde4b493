"""A request of a measurement, as plain data: who only plans or checks one needs no client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Gate, Message, RequestFields, ResponseFormat, Tool


@dataclass(frozen=True)
class Ask:
    """One request to be sent."""

    suite: str
    kind: str
    group: str
    prompt_id: str
    messages: Sequence[Message]
    output_tokens: int
    temperature: float = 0.0
    round: int = 1
    seed: int | None = None
    ignore_eos: bool = False
    tools: Sequence[Tool] | None = None
    response_format: ResponseFormat | None = None
    extra: RequestFields | None = None
    """Further fields of the request: tool_choice, chat_template_kwargs, ..."""
    gate: Gate | None = None
    """What the answer is checked for later; it is not sent."""
    stream: bool = True
    """Whether the answer comes as it is made; one that comes as a whole has no times but its end."""

    def body(self, model: str) -> RequestFields:
        """The request as the server reads it."""
        body: RequestFields = {
            "model": model,
            "messages": list(self.messages),
            "max_tokens": self.output_tokens,
            "temperature": self.temperature,
            "stream": self.stream,
        }
        if self.stream:
            # Tokens are counted by the server: with speculation one chunk carries several.
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
