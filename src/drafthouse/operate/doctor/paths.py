"""What the doctor asks without a key: every route of the engine, and the same ones of the gateway; nothing can begin.

An engine that names its routes (OpenAPI) is asked for those too: so a plugin's and development mode's are seen.
Standard library only, Python 3.10: it runs with whatever Python the box has.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.http import opener

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import PathFacts
    from drafthouse.profiles.resolved_types import ResolvedOpenPaths


#: What a path says to those whom it gives nothing.
CLOSED = (401, 403, 404)
_ASK_S = 10.0
_MOST_BYTES = 8_000_000
#: No engine has a route that is asked for by one of these; what says 405 to one is there, and open.
_HARMLESS = ("PATCH", "PUT", "DELETE")
_PLACE = re.compile(r"\{[^}]*\}")


def ask_paths(facts: ResolvedOpenPaths, base: str, key: str) -> PathFacts:
    """What the engine at ``base`` gives; ``key`` is for the list of routes alone, where that is guarded."""
    gives = {route["path"]: route["gives"] for route in facts["routes"]}
    listed = _listed(base + facts["lists"], key) if facts["lists"] else {}

    def ask(path: str) -> int | None:
        method = facts["ask"]
        if method != "GET":
            free = [harmless for harmless in _HARMLESS if harmless.lower() not in listed.get(path, ())]
            if not free:
                return CLOSED[-1]  # nothing to ask it by that could not begin something
            method = free[0]
        return _request(base + _filled(path), method)[0]

    return _asked(dict.fromkeys(listed, "") | gives, ask)


def ask_gateway_paths(facts: ResolvedOpenPaths, health: str, ask: Callable[[str, str], int]) -> PathFacts:
    """The same of the gateway: ``ask`` takes a method and a path. Its own /health is for everybody."""
    gives = {route["path"]: route["gives"] for route in facts["routes"]}
    leave = ("/health", health) if facts["ask"] == "GET" else ()

    def status(path: str) -> int | None:
        if path in leave:
            return CLOSED[-1]
        try:
            return ask(facts["ask"], _filled(path))
        except (OSError, http.client.HTTPException):
            return None

    return _asked(gives, status)


def _asked(gives: Mapping[str, str], ask: Callable[[str], int | None]) -> PathFacts:
    found: PathFacts = {"asked": 0, "open": [], "error": ""}
    for path in sorted(gives):
        status = ask(path)
        if status is None:
            # One that hangs is not waited for thirty times.
            return {**found, "error": f"no answer to {path}"}
        found["asked"] += 1
        if status not in CLOSED:
            found["open"].append({"path": path, "gives": gives[path], "status": status})
    return found


def _filled(path: str) -> str:
    return _PLACE.sub("x", path)


def _request(url: str, method: str, key: str = "") -> tuple[int | None, bytes]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 (our own address)
    try:
        with opener().open(request, timeout=_ASK_S) as answer:
            return int(answer.status), answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, ValueError, http.client.HTTPException):
        return None, b""


def _listed(url: str, key: str) -> dict[str, Sequence[str]]:
    """The methods, in small letters, of each path that the engine's OpenAPI has; nothing where it has none."""
    for given in ("", key):
        status, text = _request(url, "GET", given)
        if status == 200:
            try:
                return {str(path): list(map(str, methods)) for path, methods in json.loads(text)["paths"].items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                return {}
    return {}
