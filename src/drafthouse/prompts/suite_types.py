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
    name: NotRequired[str]  # of the speaker
    tool_calls: NotRequired[Annotated[list[Any], Anything()]]  # of an assistant's message
    tool_call_id: NotRequired[str]  # the call that a tool's message answers


class ToolFunction(TypedDict):
    """A function that the model may call in its answer, in the form of OpenAI's API."""

    name: str
    description: NotRequired[str]
    parameters: NotRequired[JsonSchema]  # that the arguments of a call must match
    strict: NotRequired[bool]  # True: the server makes sure that they do


class Tool(TypedDict):
    """A tool of a chat request, in the form of OpenAI's API."""

    type: Literal["function"]
    function: ToolFunction


class NamedSchema(TypedDict):
    """The JSON schema that an answer must match, in the form of OpenAI's API."""

    name: str  # of the schema
    description: NotRequired[str]
    schema: JsonSchema
    strict: NotRequired[bool]  # True: the server makes sure that the answer matches


class ResponseFormat(TypedDict):
    """The `response_format` of a chat request, in the form of OpenAI's API."""

    type: Literal["json_object", "json_schema", "text"]
    json_schema: NotRequired[NamedSchema]


class Expect(TypedDict, total=False):
    """What a right answer has."""

    contains: str  # a text, whether in capitals or not
    tool: str  # the name of the tool that the answer calls


Again = Literal["slots", "streams", "warm"]
"""How a prompt is repeated on the same server to compare its answers (`checks.AGAIN`)."""


class Gate(TypedDict):
    """A check that the answers to a prompt are right."""

    name: str  # a name of `checks.py`: `JSON`, `TOOLS`, `NEEDLE`, `TALK`, or a way to repeat
    again: NotRequired[Again]  # the answers to the prompt's repeats are compared too
    contains: NotRequired[str]  # a text that an answer must contain
    schema: NotRequired[JsonSchema]  # the schema that an answer must match
    tools: NotRequired[dict[str, JsonSchema]]  # schemas of the arguments, by tool that an answer may call
    tool: NotRequired[str | None]  # the tool that an answer must call; None: any of ``tools``


class RequestContent(TypedDict, total=False):
    """Request fields beside the messages, of a prompt, or of a kind for all of its prompts."""

    tools: Annotated[list[Tool], List(Anything())]
    response_format: Annotated[ResponseFormat, Anything()]
    request: RequestFields  # further fields


class ChatPrompt(RequestContent):
    """The content of a request, and what is expected of its answer."""

    messages: list[Message]
    expect: NotRequired[Expect]


class Line(ChatPrompt):
    """A prompt of a user's JSONL file, in the format `messages`."""

    id: NotRequired[str]  # without one: the kind and the number of the line
    kind: NotRequired[str]  # without one: `formats.DEFAULT_KIND`
    output_tokens: NotRequired[Count]  # without: `formats.DEFAULT_OUTPUT_TOKENS`
    tool_choice: NotRequired[Any]  # a field of the request


class Long(TypedDict):
    """A generated text, a logbook."""

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]  # its length, about
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]  # what the logbook is about; default: harbour
    needle: NotRequired[str]  # a sentence that is hidden in the text
    depth: NotRequired[Annotated[float, {"low": 0, "high": 1}]]  # its place, a fraction of the text; default: 0.5


class Talk(TypedDict):
    """A generated conversation. The prompts of its kind are some of its turns, counted from 1."""

    tokens: Annotated[int, {"low": FEWEST_TOKENS, "high": 1_000_000}]  # its length, about
    turns: Annotated[int, {"low": 2, "high": 200}]  # the number of turns (question and answer)
    first: Count  # the first turn that is a prompt
    last: Count  # the last turn that is a prompt
    seed: Annotated[int, {"low": 0}]
    setting: NotRequired[Literal["farm", "harbour", "station"]]  # what the sentences are about; default: harbour


class PromptEntry(ChatPrompt):
    """A prompt of a suite."""

    id: str  # unique in the suite
    output_tokens: NotRequired[Count]  # in place of the kind's
    long: NotRequired[Long]  # the text that replaces `{long_text}` in the last message


class TurnEntry(PromptEntry):
    """The turn ``talk["last"]`` of a conversation as a prompt; the earlier turns go in front of it."""

    talk: Talk


class Made(TypedDict):
    """Short prompts to generate."""

    form: Annotated[str, {"choices": tuple(TEXTS)}]  # the kind of text, see `synthetic.py`
    number: Annotated[int, {"low": 1, "high": MOST}]  # how many
    seed: NotRequired[Annotated[int, {"low": 0}]]


class Kind(RequestContent):
    """The prompts of one category. A file may have ``made`` or ``talk`` instead of ``prompts``."""

    output_tokens: Count  # the output length of its prompts
    prompts: Annotated[list[PromptEntry], {"required": False}]
    made: NotRequired[Made]  # short prompts to generate
    repeat: NotRequired[Count]  # how often each prompt is sent
    temperatures: NotRequired[list[Annotated[float, {"low": 0, "high": 2}]]]  # instead of the experiment's
    more: NotRequired[str]  # form of synthetic prompts, for a measurement that needs more than the suite has
    again: NotRequired[Again]  # repeat each prompt on the same server, to compare its answers
    needs: NotRequired[list[Literal["thinking", "tools"]]]  # not sent to a server without a parser for these
    talk: NotRequired[Talk]  # a conversation to generate
    file: NotRequired[str]  # a JSONL file with further prompts


class Suite(TypedDict):
    """A suite of prompts."""

    name: str
    description: str
    kinds: dict[str, Kind]  # by name
    notes: NotRequired[list[str]]  # sentences for the user on what was left out or added
