"""Suites of prompts, as types; `suites.py` and `checks.py` check the files by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import Count
from ..core.schema import Anything, List
from .long_context import FEWEST_TOKENS
from .synthetic import MOST, TEXTS

if TYPE_CHECKING:
    from typing import NotRequired

JsonSchema = dict[str, Any]
"""A JSON schema, whose keys are its own."""
RequestFields = dict[str, Any]
"""Further fields of a chat request: tool_choice, chat_template_kwargs, top_p, ... as the server has them."""
_ROLES = ("assistant", "developer", "system", "tool", "user")


class Message(TypedDict):
    """A message of OpenAI's chat API; ``content`` is text, or the list of parts that multimodal models take."""

    role: Annotated[str, {"choices": _ROLES}]
    content: Any
    name: NotRequired[str]
    tool_calls: NotRequired[Annotated[list[Any], Anything()]]
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
    """What an answer must hold (in any case), or call: then a gate looks at it."""

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

    tools: Annotated[list[Tool], List(Anything())]
    response_format: Annotated[ResponseFormat, Anything()]
    request: RequestFields


class Ask(AskFields):
    """What is sent, and what is expected of the answer."""

    messages: list[Message]
    expect: NotRequired[Expect]


class Line(Ask):
    """A prompt in a user's own JSONL."""

    id: NotRequired[str]
    kind: NotRequired[str]
    output_tokens: NotRequired[Count]
    tool_choice: NotRequired[Any]


class Long(TypedDict):
    """A long text of so many tokens; the sentence ``needle`` stands in it after the share ``depth`` of it."""

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]
    needle: NotRequired[str]
    depth: NotRequired[Annotated[float, {"low": 0, "high": 1}]]


class Talk(TypedDict):
    """A conversation of so many tokens, the last question included, in so many turns.

    A kind asks the turns ``first`` to ``last`` (from 1).
    """

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]
    turns: Annotated[int, {"low": 2, "high": 200}]
    first: Count
    last: Count
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]


class PromptEntry(Ask):
    """A prompt of a suite; ``long`` is a long text in place of the mark in its last message.

    ``output_tokens`` are in place of the kind's.
    """

    id: str
    output_tokens: NotRequired[Count]
    long: NotRequired[Long]


class TurnEntry(PromptEntry):
    """A turn of a conversation, ``talk["last"]``: all that were before it stand in front of its message."""

    talk: Talk


class Made(TypedDict):
    """Prompts that are made: their form, how many, and the seed."""

    form: Annotated[str, {"choices": tuple(TEXTS)}]
    number: Annotated[int, {"low": 1, "high": MOST}]
    seed: NotRequired[Annotated[int, {"low": 0}]]


class Kind(AskFields):
    """Prompts of one category; ``repeat`` sends them so often.

    In a file ``made`` or ``talk`` may stand in place of ``prompts``; ``file`` names JSON lines with more of them.
    ``temperatures`` are in place of the experiment's. ``again``: each prompt once more on the same server, in this
    way; its answers must be the same. ``more`` is the form of further prompts, where a measurement asks for more than
    there are. ``needs``: asked only where the profile's server has a parser for it.
    """

    output_tokens: Count
    prompts: Annotated[list[PromptEntry], {"required": False}]
    made: NotRequired[Made]
    repeat: NotRequired[Count]
    temperatures: NotRequired[list[Annotated[float, {"low": 0, "high": 2}]]]
    more: NotRequired[str]
    again: NotRequired[Again]
    needs: NotRequired[list[Literal["thinking", "tools"]]]
    talk: NotRequired[Talk]
    file: NotRequired[str]


class Suite(TypedDict):
    """A suite of prompts."""

    name: str
    description: str
    kinds: dict[str, Kind]
    notes: NotRequired[list[str]]
