"""Types of prompt suites in YAML and JSONL; `suites.py` and `checks.py` check files by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import Count
from ..core.schema import Anything, List
from .long_context import FEWEST_TOKENS
from .synthetic import MOST, TEXTS

if TYPE_CHECKING:
    from typing import NotRequired

JsonSchema = dict[str, Any]
"""A JSON schema as a mapping."""
RequestFields = dict[str, Any]
"""Further fields of a chat request, sent unchanged: tool_choice, chat_template_kwargs, top_p, ..."""
_ROLES = ("assistant", "developer", "system", "tool", "user")


class Message(TypedDict):
    """A message of OpenAI's chat API; ``content`` is text, or a list of parts for multimodal models."""

    role: Annotated[str, {"choices": _ROLES}]
    content: Any
    name: NotRequired[str]
    tool_calls: NotRequired[Annotated[list[Any], Anything()]]
    tool_call_id: NotRequired[str]


class ToolFunction(TypedDict):
    """A function that the model may call in its answer."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[JsonSchema]
    strict: NotRequired[bool]


class Tool(TypedDict):
    """A tool of a chat request, in the form of OpenAI's API."""

    type: Literal["function"]
    function: ToolFunction


class NamedSchema(TypedDict):
    """The JSON schema that an answer must match, with its name."""

    name: str
    description: NotRequired[str]
    schema: JsonSchema
    strict: NotRequired[bool]


class ResponseFormat(TypedDict):
    """The `response_format` of a chat request, in the form of OpenAI's API."""

    type: Literal["json_object", "json_schema", "text"]
    json_schema: NotRequired[NamedSchema]


class Expect(TypedDict, total=False):
    """A text that a right answer contains (in any case), or the tool that it calls."""

    contains: str
    tool: str


Again = Literal["slots", "streams", "warm"]
"""How a prompt is repeated on the same server to compare its answers (`checks.AGAIN`)."""


class Gate(TypedDict):
    """A check that the answers to a prompt are right."""

    name: str
    again: NotRequired[Again]  # the answers to the prompt's repeats are compared too
    contains: NotRequired[str]  # a text that an answer must contain
    schema: NotRequired[JsonSchema]  # that an answer must match
    tools: NotRequired[dict[str, JsonSchema]]  # schemas of the arguments, by tool that an answer may call
    tool: NotRequired[str | None]  # the tool that an answer must call; None: any of ``tools``


class AskFields(TypedDict, total=False):
    """Request fields beside the messages, of a prompt, or of a kind for all of its prompts."""

    tools: Annotated[list[Tool], List(Anything())]
    response_format: Annotated[ResponseFormat, Anything()]
    request: RequestFields


class Ask(AskFields):
    """The content of a request, and what is expected of its answer."""

    messages: list[Message]
    expect: NotRequired[Expect]


class Line(Ask):
    """A prompt of a user's JSONL file, in the format `messages`."""

    id: NotRequired[str]
    kind: NotRequired[str]
    output_tokens: NotRequired[Count]
    tool_choice: NotRequired[Any]


class Long(TypedDict):
    """A generated text of about ``tokens`` tokens; the sentence ``needle`` is at the fraction ``depth``."""

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]
    needle: NotRequired[str]
    depth: NotRequired[Annotated[float, {"low": 0, "high": 1}]]


class Talk(TypedDict):
    """A generated conversation of about ``tokens`` tokens.

    The prompts of its kind are the turns ``first`` to ``last``, counted from 1.
    """

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]
    turns: Annotated[int, {"low": 2, "high": 200}]
    first: Count
    last: Count
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]


class PromptEntry(Ask):
    """A prompt of a suite; ``long`` describes the text that replaces `{long_text}` in its last message.

    ``output_tokens`` overrides the kind's.
    """

    id: str
    output_tokens: NotRequired[Count]
    long: NotRequired[Long]


class TurnEntry(PromptEntry):
    """The turn ``talk["last"]`` of a conversation as a prompt; the earlier turns go in front of it."""

    talk: Talk


class Made(TypedDict):
    """Short prompts to generate: their form, how many, and the seed."""

    form: Annotated[str, {"choices": tuple(TEXTS)}]
    number: Annotated[int, {"low": 1, "high": MOST}]
    seed: NotRequired[Annotated[int, {"low": 0}]]


class Kind(AskFields):
    """The prompts of one category. A file may have ``made`` or ``talk`` instead of ``prompts``."""

    output_tokens: Count
    prompts: Annotated[list[PromptEntry], {"required": False}]
    made: NotRequired[Made]
    repeat: NotRequired[Count]  # how often each prompt is sent
    temperatures: NotRequired[list[Annotated[float, {"low": 0, "high": 2}]]]  # instead of the experiment's
    more: NotRequired[str]  # form of synthetic prompts, for a measurement that needs more than the suite has
    again: NotRequired[Again]  # repeat each prompt on the same server, to compare its answers
    needs: NotRequired[list[Literal["thinking", "tools"]]]  # not sent to a server without a parser for these
    talk: NotRequired[Talk]
    file: NotRequired[str]  # a JSONL file with further prompts


class Suite(TypedDict):
    """A suite of prompts: kinds by name; ``notes`` are sentences on what was left out or added."""

    name: str
    description: str
    kinds: dict[str, Kind]
    notes: NotRequired[list[str]]
