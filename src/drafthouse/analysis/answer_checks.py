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

_SHOWN_CHARACTERS = 120


def check_answer(request: Request) -> tuple[str, str]:
    """Return what an answer is by the gate of its request (right, wrong, open), and why when it is not right."""
    if gave_nothing(request):
        return WRONG, str(request.get("error") or f"HTTP {request.get('http_status')}")
    gate = request.get("gate")
    check = _CHECKS.get(gate.get("name", "")) if gate else None
    if gate is None or check is None:
        return OPEN, f"unknown gate {gate and gate.get('name')!r}"
    return check(request, gate)


def _check_json(request: Request, gate: Gate) -> tuple[str, str]:
    try:
        value = read_json(str(request.get("text") or ""))
    except Unfinished as error:
        return (OPEN if was_cut(request) else WRONG), f"{error}: {short(request.get('text'))}"
    except ValueError as error:
        return WRONG, f"{error}: {short(request.get('text'))}"
    problem = why_not(value, gate.get("schema") or {})
    return (WRONG, problem) if problem else (RIGHT, "")


def _check_tools(request: Request, gate: Gate) -> tuple[str, str]:
    calls = request.get("tool_calls") or []
    wanted = gate.get("tool")
    if not calls:
        said = f"no call: {short(request.get('text'))}"
        # Without a tool that must be called, text is an answer too; whether both arms call, `outputs` tells.
        return (OPEN if was_cut(request) or not wanted else WRONG), said
    for call in calls:
        state, why = _check_call(call, gate.get("tools") or {}, was_cut(request))
        if state != RIGHT:
            return state, why
    if wanted and wanted not in [call.get("name") for call in calls]:
        return WRONG, f"called {calls[0].get('name')} instead of {wanted}"
    return RIGHT, ""


def _check_call(call: ToolCall, tools: Mapping[str, JsonSchema], cut: bool) -> tuple[str, str]:
    name, text = str(call.get("name")), str(call.get("arguments") or "")
    if name not in tools:
        return WRONG, f"called {name!r}, which is not one of the tools"
    try:
        # Nothing at all is how some servers write a call without arguments.
        arguments = read_json(text or "{}")
    except Unfinished as error:
        return (OPEN if cut else WRONG), f"{name}: {error}: {short(text)}"
    except ValueError as error:
        return WRONG, f"{name}: {error}: {short(text)}"
    if not isinstance(arguments, dict):
        return WRONG, f"{name}: the arguments are not an object: {short(text)}"
    problem = why_not(arguments, dict(tools[name]))
    return (WRONG, f"{name}: {problem}") if problem else (RIGHT, "")


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
    """Tell whether an answer ends where its output length did."""
    return request.get("finish_reason") == "length"


def short(text: object) -> str:
    """Return the beginning of a text, on one line, for a sentence."""
    words = " ".join(str(text or "").split())
    return f"{words[:_SHOWN_CHARACTERS]}…" if len(words) > _SHOWN_CHARACTERS else words or "(nothing)"
