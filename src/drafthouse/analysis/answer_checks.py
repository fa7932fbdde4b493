"""Is one answer right: JSON of a schema, calls of tools, words that it must hold. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..bench.result_types import Request, ToolCall
from ..bench.samples import gave_nothing
from ..prompts.checks import JSON, NEEDLE, TOOLS
from ..prompts.json_schema import Unfinished, read_json, why_not
from ..prompts.suite_types import Gate, JsonSchema

RIGHT, WRONG, OPEN = "right", "wrong", "open"
"""What an answer can be; open: it was cut off by the output length before it could be told."""

_WORSE = (RIGHT, OPEN, WRONG)
_SHOWN_CHARACTERS = 120


def worse(known: tuple[str, str] | None, state: tuple[str, str]) -> tuple[str, str]:
    """The worse of two states of a prompt's answers, the known one where they are alike."""
    if known is None or _WORSE.index(state[0]) > _WORSE.index(known[0]):
        return state
    return known


def check_answer(request: Request) -> tuple[str, str]:
    """What an answer is by the gate of its request (right, wrong, open), and why when it is not right."""
    if gave_nothing(request):
        return WRONG, str(request.get("error") or f"HTTP {request.get('http_status')}")
    gate = request.get("gate")
    check = _CHECKS.get(gate.get("name", "")) if gate else None
    if gate is None or check is None:
        return OPEN, f"unknown gate {gate and gate.get('name')!r}"
    return check(request, gate)


def _check_value(text: str, schema: JsonSchema, request: Request) -> tuple[str, str]:
    """What a JSON text is by a schema."""
    try:
        problem = why_not(read_json(text), schema)
    except ValueError as error:
        if isinstance(error, Unfinished) and was_cut(request):
            return OPEN, f"{error}: {short(text)}"
        return WRONG, f"{error}: {short(text)}"
    if problem:
        return WRONG, problem
    return RIGHT, ""


def _check_json(request: Request, gate: Gate) -> tuple[str, str]:
    return _check_value(str(request.get("text") or ""), gate.get("schema") or {}, request)


def _check_tools(request: Request, gate: Gate) -> tuple[str, str]:
    calls = request.get("tool_calls") or []
    wanted = gate.get("tool")
    if not calls:
        no_call = f"no call: {short(request.get('text'))}"
        # Without a tool that must be called, text is an answer too; whether both arms call, `outputs` tells.
        if was_cut(request) or not wanted:
            return OPEN, no_call
        return WRONG, no_call
    for call in calls:
        state, why = _check_call(call, gate.get("tools") or {}, request)
        if state != RIGHT:
            return state, why
    if wanted and wanted not in [call.get("name") for call in calls]:
        return WRONG, f"called {calls[0].get('name')} instead of {wanted}"
    return RIGHT, ""


def _check_call(call: ToolCall, tools: Mapping[str, JsonSchema], request: Request) -> tuple[str, str]:
    name, text = str(call.get("name")), str(call.get("arguments") or "")
    if name not in tools:
        return WRONG, f"called {name!r}, which is not one of the tools"
    # Nothing at all is how some servers write a call without arguments.
    state, why = _check_value(text or "{}", {**tools[name], "type": "object"}, request)
    if why:
        why = f"{name}: {why}"
    return state, why


def _check_needle(request: Request, gate: Gate) -> tuple[str, str]:
    # Only the answer counts: a model that thinks repeats half of the text on the way.
    text = str(request.get("text") or "")
    wanted = str(gate.get("contains") or "")
    # As words of their own: 417 is not found in 4170.
    if re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text, re.IGNORECASE):
        return RIGHT, ""
    if not text.strip() and was_cut(request):
        return OPEN, "no answer within the output length limit"
    return WRONG, f"'{wanted}' is not in: {short(text)}"


_CHECKS: dict[str, Callable[[Request, Gate], tuple[str, str]]] = {
    JSON: _check_json,
    TOOLS: _check_tools,
    NEEDLE: _check_needle,
}


def was_cut(request: Request) -> bool:
    """Whether an answer ends where its output length did."""
    return request.get("finish_reason") == "length"


def short(text: object) -> str:
    """The beginning of a text, on one line, for a sentence."""
    words = " ".join(str(text or "").split())
    if len(words) > _SHOWN_CHARACTERS:
        return f"{words[:_SHOWN_CHARACTERS]}…"
    return words or "(nothing)"
