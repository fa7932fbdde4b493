"""Suites of prompts, as types; `suites.py` and `checks.py` check the files against the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

JsonSchema = dict[str, Any]
"""A JSON schema, whose keys are its own."""
RequestFields = dict[str, Any]
"""Further fields of a chat request: tool_choice, top_p, ... as the server has them."""


class Message(TypedDict):
    """A message of OpenAI's chat API; ``content`` is text, or the list of parts that multimodal models take."""

    role: str
    content: Any
    name: NotRequired[str]
    tool_calls: NotRequired[list[Any]]
    tool_call_id: NotRequired[str]


class ToolFunction(TypedDict):
    """A function that an answer may call."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[JsonSchema]
    strict: NotRequired[bool]


class Tool(TypedDict):
    """A tool, as OpenAI's chat API takes it."""

    type: Literal["function"]
    function: ToolFunction


class NamedSchema(TypedDict):
    """The schema of an answer."""

    name: str
    description: NotRequired[str]
    schema: JsonSchema
    strict: NotRequired[bool]


class ResponseFormat(TypedDict):
    """The form of an answer, as OpenAI's chat API takes it."""

    type: Literal["json_object", "json_schema", "text"]
    json_schema: NotRequired[NamedSchema]


class Expect(TypedDict, total=False):
    """What an answer must hold (in any case), or call."""

    contains: str
    tool: str


Again = Literal["slots", "streams", "warm"]
"""How a prompt is asked again on the same server (`checks.AGAIN`)."""


class Gate(TypedDict):
    """What an answer is checked for: words, a JSON document of a schema, or a call of one of these tools.

    ``again`` sets the answers to one prompt that was asked several times beside each other.
    """

    name: str
    again: NotRequired[Again]
    contains: NotRequired[str]
    schema: NotRequired[JsonSchema]
    tools: NotRequired[dict[str, JsonSchema]]
    tool: NotRequired[str | None]


class AskFields(TypedDict, total=False):
    """What a prompt, or a kind for all of its prompts, asks for beside its messages."""

    tools: list[Tool]
    response_format: ResponseFormat
    request: RequestFields


class Ask(AskFields):
    """What is sent, and what is expected of the answer."""

    messages: list[Message]
    expect: NotRequired[Expect]


class Line(Ask):
    """A prompt in a user's own JSONL."""

    id: NotRequired[str]
    kind: NotRequired[str]
    output_tokens: NotRequired[int]
    tool_choice: NotRequired[Any]


class Long(TypedDict):
    """A long text of so many tokens; the sentence ``needle`` stands in it after the share ``depth``."""

    tokens: int
    seed: int
    setting: NotRequired[Literal["farm", "harbour", "station"]]
    needle: NotRequired[str]
    depth: NotRequired[float]


class Talk(TypedDict):
    """A conversation of so many tokens in so many turns; a kind asks the turns ``first`` to ``last`` (from 1)."""

    tokens: int
    turns: int
    first: int
    last: int
    seed: int
    setting: NotRequired[Literal["farm", "harbour", "station"]]


class PromptEntry(Ask):
    """A prompt of a suite; ``long`` is a long text in place of the mark in its last message."""

    id: str
    output_tokens: NotRequired[int]
    long: NotRequired[Long]


class TurnEntry(PromptEntry):
    """A turn of a conversation, ``talk["last"]``: all that were before it stand in front of its message."""

    talk: Talk


class Made(TypedDict):
    """Prompts that are made: their form, how many, and the seed."""

    form: str
    number: int
    seed: NotRequired[int]


class Kind(AskFields):
    """Prompts of one category; ``repeat`` sends them so often, ``more`` is the form of further ones.

    In a file ``made`` or ``talk`` may stand in place of ``prompts``. ``needs`` is what the server must be able to do.
    """

    output_tokens: int
    prompts: list[PromptEntry]
    made: NotRequired[Made]
    repeat: NotRequired[int]
    temperatures: NotRequired[list[float]]
    more: NotRequired[str]
    again: NotRequired[Again]
    needs: NotRequired[list[Literal["thinking", "tools"]]]
    talk: NotRequired[Talk]


class Suite(TypedDict):
    """A suite of prompts."""

    name: str
    description: str
    kinds: dict[str, Kind]
    notes: NotRequired[list[str]]
