"""Check the fields of a prompt beside its messages: tools, response format, request fields, expected answer.

They also decide the prompt's gate: the check that its answers are right (`analysis/gates.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import did_you_mean
from ..core.schema import Findings, check, check_keys
from ..core.typed_shape import shape_of
from .suite_types import RequestContent, ResponseFormat, Tool

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Again, ChatPrompt, Gate, JsonSchema, PromptEntry

#: Names of gates that check single answers: JSON, tool calls, and words hidden in a long text.
JSON, TOOLS, NEEDLE = "json", "tools", "needle"

WARM: Final = "warm"
SLOTS: Final = "slots"
STREAMS: Final = "streams"
#: Ways to repeat a prompt on the same server, and the default number of requests: with its prefix in the prefix cache
#: (warm), concurrently (slots), or first streamed and then not (streams). A gate compares the answers.
AGAIN: dict[Again, int] = {SLOTS: 4, STREAMS: 2, WARM: 2}
#: Gate name of a conversation's turn: its answers are not checked, and only its acceptance rate is reported.
TALK = "talk"

#: Request fields that only the experiment or another key of the suite sets.
RESERVED = (
    "ignore_eos",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "response_format",
    "seed",
    "stream",
    "stream_options",
    "temperature",
    "tools",
)

#: Keys that a prompt, a kind (for all of its prompts) and a line of a user's JSONL file may have.
REQUEST_FIELDS = shape_of(RequestContent).fields
_TOOL = shape_of(Tool)
_RESPONSE_FORMAT = shape_of(ResponseFormat)


def check_request_fields(entry: RequestContent, findings: Findings, path: str) -> None:
    """Add to ``findings`` the problems of tools, response format and request fields; ``entry`` has the right shape."""
    names: list[str] = []
    for index, tool in enumerate(entry.get("tools") or []):
        place = f"{path}.tools[{index}]"
        if check(tool, _TOOL, findings, place):
            name = tool["function"]["name"]
            if name in names:
                findings.add(
                    "duplicate-name",
                    f"{place}.function.name",
                    f"'{name}' again",
                    "each tool once",
                    "rename or remove one",
                )
            names.append(name)
            _check_schema(tool["function"].get("parameters", {}), findings, f"{place}.function.parameters")
    if "tools" in entry and not entry["tools"]:
        findings.add("empty-value", f"{path}.tools", "an empty list", "one tool or more", "add one, or remove the key")
    form = entry.get("response_format")
    if form is not None and check(form, _RESPONSE_FORMAT, findings, f"{path}.response_format"):
        if form["type"] == "json_schema" and "json_schema" not in form:
            place = f"{path}.response_format.json_schema"
            findings.add("missing-key", place, "nothing", "{name: ..., schema: {...}}", "add the schema")
        elif "json_schema" in form:
            place = f"{path}.response_format.json_schema.schema"
            _check_schema(form["json_schema"]["schema"], findings, place)
    _check_further_fields(entry.get("request"), findings, f"{path}.request")


def _check_further_fields(request: object, findings: Findings, path: str) -> None:
    """Add the problems of `request:`, the further fields of a chat request; None has none."""
    if request is None:
        return
    if not isinstance(request, Mapping):
        findings.add("wrong-type", path, f"{request!r}", "fields of a chat request", "write it as a mapping")
        return
    check_keys(request, findings, path)
    for name in request:
        if name in RESERVED:
            findings.add(
                "reserved-name",
                f"{path}.{name}",
                f"the key '{name}'",
                "a field that neither the experiment nor another key of the suite sets",
                f"write '{name}:' beside 'request:'" if name in REQUEST_FIELDS else "remove it",
            )


def _check_schema(value: object, findings: Findings, path: str) -> None:
    """Add a problem for a schema that is no mapping, or whose keys are no text."""
    if not isinstance(value, Mapping):
        findings.add("wrong-type", path, f"{value!r}"[:80], "a JSON schema", "write it as a mapping")
    check_keys(value, findings, path)


def check_expect(asked: ChatPrompt, findings: Findings, path: str) -> None:
    """Add to ``findings`` an `expect:` that no answer can meet; ``asked`` has its kind's fields filled in."""
    expect = asked.get("expect") or {}
    tools = [tool["function"]["name"] for tool in asked.get("tools") or [] if _is_tool(tool)]
    if "tool" in expect and expect["tool"] not in tools:
        findings.add(
            "unknown-value",
            f"{path}.expect.tool",
            f"'{expect['tool']}'",
            f"one of the prompt's tools: {', '.join(tools) or '(none)'}",
            did_you_mean(expect["tool"], tools),
        )
    if "contains" in expect and (asked.get("tools") or wants_json(asked)):
        findings.add(
            "conflicting-keys",
            f"{path}.expect.contains",
            "words expected of an answer that is JSON or a call",
            "a prompt without tools and response_format",
            "remove the key, or make it a prompt of its own",
        )
    if "contains" in expect and not expect["contains"].strip():
        findings.add("empty-value", f"{path}.expect.contains", "no words", "what the answer must hold", "write it")


def _is_tool(tool: object) -> bool:
    """True for a tool with a name; `check_request_fields` reports others."""
    return isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping) and "name" in tool["function"]


def wants_json(asked: RequestContent) -> bool:
    """True if the response format of a prompt is JSON."""
    form = asked.get("response_format")
    return isinstance(form, Mapping) and form.get("type") in ("json_object", "json_schema")


def copy_request_fields(prompt: RequestContent, source: RequestContent) -> None:
    """Copy the fields of `RequestContent` from ``source`` to ``prompt``, except those that ``prompt`` has."""
    if "tools" in source and "tools" not in prompt:
        prompt["tools"] = source["tools"]
    if "response_format" in source and "response_format" not in prompt:
        prompt["response_format"] = source["response_format"]
    if "request" in source and "request" not in prompt:
        prompt["request"] = source["request"]


def with_kind_fields(kind: RequestContent, prompt: PromptEntry) -> PromptEntry:
    """A prompt with its kind's fields filled in; its own fields win, in `request` field by field."""
    asked: PromptEntry = {**prompt}
    copy_request_fields(asked, kind)
    kind_request = kind.get("request")
    own_request = prompt.get("request")
    if isinstance(kind_request, Mapping) and isinstance(own_request, Mapping):
        asked["request"] = {**kind_request, **own_request}
    return asked


def gate_of(asked: ChatPrompt) -> Gate | None:
    """The gate of a prompt, as plain data that is stored with its requests; None if any answer is right.

    ``{"name": "tools", "tools": {name: parameters}, "tool": the tool that must be called or None}``,
    ``{"name": "json", "schema": {...}}`` (an empty schema allows any JSON), or
    ``{"name": "needle", "contains": text}``.
    """
    expect = asked.get("expect") or {}
    if asked.get("tools"):
        tools: dict[str, JsonSchema] = {}
        for tool in asked["tools"]:
            tools[tool["function"]["name"]] = tool["function"].get("parameters") or {}
        return {"name": TOOLS, "tools": tools, "tool": expect.get("tool")}
    if wants_json(asked):
        named = asked["response_format"].get("json_schema")
        if not named:
            return {"name": JSON, "schema": {}}
        return {"name": JSON, "schema": dict(named["schema"])}
    if "contains" in expect:
        return {"name": NEEDLE, "contains": expect["contains"]}
    return None


def schemas_of(asked: RequestContent) -> list[tuple[str, JsonSchema]]:
    """The JSON schemas of a prompt's tools and response format, each with its path below the prompt."""
    schemas = []
    for index, tool in enumerate(asked.get("tools") or []):
        if "parameters" in tool["function"]:
            schemas.append((f"tools[{index}].function.parameters", tool["function"]["parameters"]))
    form = asked.get("response_format")
    if form and (named := form.get("json_schema")):
        schemas.append(("response_format.json_schema.schema", named["schema"]))
    return schemas
