"""Checks a single answer by the gate of its request. A gate is a test of the outputs that some requests belong to.

A right answer is JSON of a schema, calls the right tools, or has the needle: words hidden in a long prompt.
A state with its reason is the pair (RIGHT, ""), (WRONG, why) or (OPEN, why).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..bench.result_types import Request, ToolCall
from ..bench.samples import refused_or_empty
from ..prompts.checks import JSON, NEEDLE, TOOLS
from ..prompts.json_schema import Unfinished, read_json, why_not
from ..prompts.suite_types import Gate, JsonSchema

RIGHT, WRONG, OPEN = "right", "wrong", "open"
"""States of an answer; OPEN: undecided, mostly because the output length limit cut it off."""

_BEST_FIRST = (RIGHT, OPEN, WRONG)  # `worse_state` takes the later of two
_SHOWN_CHARACTERS = 120  # a sentence quotes at most so many characters of an answer


def worse_state(previous: tuple[str, str] | None, state: tuple[str, str]) -> tuple[str, str]:
    """The worse of two states with reasons: ``previous`` if they are equal, ``state`` if there is no previous one."""
    if previous is None or _BEST_FIRST.index(state[0]) > _BEST_FIRST.index(previous[0]):
        return state
    return previous


def check_answer(request: Request) -> tuple[str, str]:
    """The state of an answer by the gate of its request, and the reason.

    An answer that the server refused or left empty is WRONG, whatever its gate; an unknown gate gives OPEN.
    """
    if refused_or_empty(request):
        return WRONG, str(request.get("error") or f"HTTP {request.get('http_status')}")
    gate = request.get("gate")
    check = _CHECKS.get(gate.get("name", "")) if gate else None
    if gate is None or check is None:
        return OPEN, f"unknown gate {gate and gate.get('name')!r}"
    return check(request, gate)


def _check_value(text: str, schema: JsonSchema, request: Request) -> tuple[str, str]:
    """The state of a JSON text by a schema, and the reason.

    A text that ends too early is OPEN if the output length limit cut it off. Other text that is no JSON or that does
    not fit the schema is WRONG.
    """
    try:
        problem = why_not(read_json(text), schema)
    except ValueError as error:
        # The rest of a text that was cut off might have made it right.
        if isinstance(error, Unfinished) and was_cut(request):
            return OPEN, f"{error}: {excerpt(text)}"
        return WRONG, f"{error}: {excerpt(text)}"
    if problem:
        return WRONG, problem
    return RIGHT, ""


def _check_json(request: Request, gate: Gate) -> tuple[str, str]:
    return _check_value(str(request.get("text") or ""), gate.get("schema") or {}, request)


def _check_tools(request: Request, gate: Gate) -> tuple[str, str]:
    """The state of an answer's tool calls, and the reason.

    - Without a call: WRONG if the gate requires a tool and the answer was not cut off, else OPEN.
    - The first call that is not RIGHT decides.
    - Calls that are all RIGHT, but not the required tool among them: WRONG.
    """
    tool_calls = request.get("tool_calls") or []
    required_tool = gate.get("tool")
    if not tool_calls:
        no_call = f"no call: {excerpt(request.get('text'))}"
        # If no tool is required, plain text may be right; the gate `outputs` compares whether both arms call.
        if was_cut(request) or not required_tool:
            return OPEN, no_call
        return WRONG, no_call
    for call in tool_calls:
        state, why = _check_call(call, gate.get("tools") or {}, request)
        if state != RIGHT:
            return state, why
    if required_tool and required_tool not in [call.get("name") for call in tool_calls]:
        return WRONG, f"called {tool_calls[0].get('name')} instead of {required_tool}"
    return RIGHT, ""


def _check_call(call: ToolCall, tools: Mapping[str, JsonSchema], request: Request) -> tuple[str, str]:
    """The state of one call and the reason; ``tools`` has the schemas of the arguments by tool."""
    name = str(call.get("name"))
    arguments = str(call.get("arguments") or "")
    if name not in tools:
        return WRONG, f"called {name!r}, which is not one of the tools"
    # Some servers send an empty string for a call without arguments. A schema may omit that arguments are an object.
    state, why = _check_value(arguments or "{}", {**tools[name], "type": "object"}, request)
    if why:
        why = f"{name}: {why}"
    return state, why


def _check_needle(request: Request, gate: Gate) -> tuple[str, str]:
    """RIGHT if the answer has the needle, OPEN if it is empty because it was cut off, else WRONG; and the reason."""
    # The reasoning does not count: it often quotes the searched text.
    text = str(request.get("text") or "")
    needle = str(gate.get("contains") or "")
    # Whole words only: 4170 does not contain 417.
    if re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", text, re.IGNORECASE):
        return RIGHT, ""
    if not text.strip() and was_cut(request):
        return OPEN, "no answer within the output length limit"
    return WRONG, f"'{needle}' is not in: {excerpt(text)}"


_CHECKS: dict[str, Callable[[Request, Gate], tuple[str, str]]] = {
    JSON: _check_json,
    TOOLS: _check_tools,
    NEEDLE: _check_needle,
}


def was_cut(request: Request) -> bool:
    """True if the output length limit ended the answer."""
    return request.get("finish_reason") == "length"


def excerpt(text: object) -> str:
    """The first characters of a text on one line, to quote in a sentence; "(nothing)" for a blank text."""
    line = " ".join(str(text or "").split())
    if len(line) > _SHOWN_CHARACTERS:
        return f"{line[:_SHOWN_CHARACTERS]}…"
    return line or "(nothing)"
