"""What one arm measured, as its result holds it: requests, rounds, and the time per token of each prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

Request = Mapping[str, Any]
Result = Mapping[str, Any]
Prompt = tuple[Any, Any]
"""The group and the id of a prompt."""

#: What a server answers to a request whose form it does not take (RFC 9110): no tools here, no such schema.
REFUSALS = (400, 404, 422, 501)


def requests_of(result: Result) -> list[Request]:
    """Return the raw requests of a result."""
    return list(result.get("requests") or [])


def rounds_of(requests: Iterable[Request]) -> list[Any]:
    """Return the numbers of the rounds, in order."""
    return sorted({r.get("round") for r in requests}, key=lambda value: (value is None, value))


def measured_tpot(request: Request) -> float | None:
    """Return the TPOT of a whole answer in ms, or None: one token, or all in one chunk, has none."""
    value = request.get("tpot_ms")
    usable = request.get("status") == "ok" and isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if usable and value is not None else None


def tpot_by_prompt(requests: Iterable[Request]) -> dict[Prompt, dict[Any, float]]:
    """Return the TPOT in ms of every prompt, by round: ``{(group, prompt_id): {round: ms}}``."""
    found: dict[Prompt, dict[Any, float]] = {}
    for request in requests:
        value = measured_tpot(request)
        if value is not None:
            prompt = str(request.get("group")), request.get("prompt_id")
            found.setdefault(prompt, {})[request.get("round")] = value
    return found


def apart_from_temperature(requests: Iterable[Request]) -> dict[Prompt, Prompt]:
    """Return what each prompt of a group is whatever its temperature: ``{(group, prompt_id): (kind, prompt_id)}``.

    A group is a kind at one temperature, and a prompt asked at two of them is one prompt: its answers gain alike.
    """
    return {
        (str(r.get("group")), r.get("prompt_id")): (str(r.get("kind") or r.get("group")), r.get("prompt_id"))
        for r in requests
    }


def disturbances(result: Result) -> list[tuple[str, Any, str]]:
    """Return what disturbed an arm while it was measured: the group, the round, and a sentence.

    That is somebody else's traffic on its server, and a machine that was suspended (`traffic.py`). A result of an
    older version, and an engine that counts nothing, tell nothing of it.
    """
    found = [(one, one.get("foreign")) for one in result.get("counters") or []]
    found += [(one, one.get("clock")) for one in (result.get("machine") or {}).get("groups") or []]
    return [
        (str(one.get("group")), one.get("round"), str(bad["said"])) for one, bad in found if bad and bad["polluted"]
    ]


def gave_nothing(request: Request) -> bool:
    """Tell whether a server refused what a gate tries (tools, a schema), or answered it with nothing at all.

    Then the gate judges it: it is an answer, a wrong one, and no breakdown of the server.
    """
    refused = request.get("status") == "failed" and request.get("http_status") in REFUSALS
    return bool(request.get("gate")) and (refused or request.get("status") == "empty")
