"""Suites of prompts, as types; `suites.py` and `checks.py` check the files against the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

JsonSchema = dict[str, Any]
"""A JSON schema, whose keys are its own."""


class Message(TypedDict):
    """A message of OpenAI's chat API; ``content`` is text, or the list of parts that multimodal models take."""

    role: str
    content: Any
    name: NotRequired[str]
    tool_calls: NotRequired[list[Any]]
    tool_call_id: NotRequired[str]


class Gate(TypedDict, total=False):
    """What an answer must hold: a word, a JSON document of a schema, or a call of one of these tools."""

    name: str
    contains: str
    schema: JsonSchema
    tools: dict[str, JsonSchema]


class AskFields(TypedDict, total=False):
    """What a prompt, or a kind for all of its prompts, asks for beside its messages."""

    tools: list[JsonSchema]
    tool_choice: Any
    response_format: JsonSchema
    request: dict[str, Any]


class PromptEntry(AskFields):
    """A prompt of a suite; ``long`` is a long text in place of the mark in its last message."""

    id: str
    messages: list[Message]
    output_tokens: NotRequired[int]
    expect: NotRequired[dict[str, Any]]
    long: NotRequired[dict[str, Any]]


class Kind(AskFields):
    """Prompts of one category; ``repeat`` sends them so often, ``more`` is the form of further ones."""

    output_tokens: int
    prompts: list[PromptEntry]
    repeat: NotRequired[int]
    temperatures: NotRequired[list[float]]
    more: NotRequired[str]


class Suite(TypedDict):
    """A suite of prompts."""

    name: str
    description: str
    kinds: dict[str, Kind]
    notes: NotRequired[list[str]]
