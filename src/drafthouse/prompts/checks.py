"""What a prompt may ask for beside its messages: tools, a form of the answer, further fields, words it must hold.

Pure. From it follows the gate of a prompt: what its answers are checked for (`gates.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import did_you_mean
from ..core.schema import Findings, check, check_keys
from ..core.typed_shape import shape_of
from .suite_types import AskFields, ResponseFormat, Tool

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Again, Ask, Gate, JsonSchema, PromptEntry

JSON, TOOLS, NEEDLE = "json", "tools", "needle"

WARM: Final = "warm"
SLOTS: Final = "slots"
STREAMS: Final = "streams"
#: How a prompt is asked again on the same server: with its prefix in the cache, several times at once, or streamed and
#: then not; and how often in all, without a `repeat` of its own.
AGAIN: dict[Again, int] = {SLOTS: 4, STREAMS: 2, WARM: 2}
#: The mark of a turn of a growing conversation: looked at for its acceptance alone.
TALK = "talk"

#: What the experiment sets, for every prompt alike.
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

#: Keys of a prompt, of a kind (for all of its prompts), and of a line of a user's own.
ASK_FIELDS = shape_of(AskFields).fields
_TOOL, _FORMAT = shape_of(Tool), shape_of(ResponseFormat)


def check_ask(entry: AskFields, findings: Findings, path: str) -> None:
    """Add to ``findings`` what is wrong with the asks of a prompt, a kind or a line; its shape is checked before."""
    names: list[str] = []
    for number, tool in enumerate(entry.get("tools") or []):
        place = f"{path}.tools[{number}]"
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
            _check_object(tool["function"].get("parameters", {}), findings, f"{place}.function.parameters")
    if "tools" in entry and not entry["tools"]:
        findings.add("empty-value", f"{path}.tools", "an empty list", "one tool or more", "add one, or remove the key")
    form = entry.get("response_format")
    if form is not None and check(form, _FORMAT, findings, f"{path}.response_format"):
        if form["type"] == "json_schema" and "json_schema" not in form:
            place = f"{path}.response_format.json_schema"
            findings.add("missing-key", place, "nothing", "{name: ..., schema: {...}}", "add the schema")
        elif "json_schema" in form:
            place = f"{path}.response_format.json_schema.schema"
            _check_object(form["json_schema"]["schema"], findings, place)
    _check_request(entry.get("request"), findings, f"{path}.request")


def _check_request(request: object, findings: Findings, path: str) -> None:
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
                f"write '{name}:' beside 'request:'" if name in ASK_FIELDS else "remove it",
            )


def _check_object(value: object, findings: Findings, path: str) -> None:
    if not isinstance(value, Mapping):
        findings.add("wrong-type", path, f"{value!r}"[:80], "a JSON schema", "write it as a mapping")
    check_keys(value, findings, path)


def check_expect(asked: Ask, findings: Findings, path: str) -> None:
    """Add to ``findings`` what is expected of an answer and cannot be; ``asked`` has the kind's asks in it."""
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
    return isinstance(tool, Mapping) and isinstance(tool.get("function"), Mapping) and "name" in tool["function"]


def wants_json(asked: AskFields) -> bool:
    """Whether a prompt's answer has to be JSON."""
    form = asked.get("response_format")
    return isinstance(form, Mapping) and form.get("type") in ("json_object", "json_schema")


def take_asks(prompt: AskFields, source: AskFields) -> None:
    """Have ``prompt`` ask for what ``source`` asks for beside its messages, but for what it asks for itself."""
    if "tools" in source and "tools" not in prompt:
        prompt["tools"] = source["tools"]
    if "response_format" in source and "response_format" not in prompt:
        prompt["response_format"] = source["response_format"]
    if "request" in source and "request" not in prompt:
        prompt["request"] = source["request"]


def asked_of(kind: AskFields, prompt: PromptEntry) -> PromptEntry:
    """A prompt with what its kind asks of all of them; its own goes before, `request` field by field."""
    asked: PromptEntry = {**prompt}
    take_asks(asked, kind)
    of_kind, own = kind.get("request"), prompt.get("request")
    if isinstance(of_kind, Mapping) and isinstance(own, Mapping):
        asked["request"] = {**of_kind, **own}
    return asked


def gate_of(asked: Ask) -> Gate | None:
    """What the answers to a prompt are checked for, as plain data that travels with its requests.

    ``{"name": "tools", "tools": {name: parameters}, "tool": the one that must be called or None}``,
    ``{"name": "json", "schema": {...}}`` (empty for any JSON), ``{"name": "needle", "contains": text}``;
    None where anything is a good answer.
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


def schemas_of(asked: AskFields) -> list[tuple[str, JsonSchema]]:
    """Every JSON schema in a prompt's asks, with its path below the prompt."""
    found = []
    for number, tool in enumerate(asked.get("tools") or []):
        if "parameters" in tool["function"]:
            found.append((f"tools[{number}].function.parameters", tool["function"]["parameters"]))
    form = asked.get("response_format")
    if form and (named := form.get("json_schema")):
        found.append(("response_format.json_schema.schema", named["schema"]))
    return found
