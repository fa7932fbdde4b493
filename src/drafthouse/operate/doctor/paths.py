"""Requests every route of the engine and of the gateway without the API key, by methods that start no action.

Routes come from the catalogue and, if the engine has one, from its OpenAPI document, which also lists plugins' routes.
Standard library only, Python 3.10: it runs with the Python of the box.
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


#: Statuses of a path that gives nothing without the API key.
CLOSED = (401, 403, 404)
_TIMEOUT_S = 10.0
_MAX_BYTES = 8_000_000
#: Methods that no engine route implements. Status 405 (wrong method) then shows that a path exists and is open.
_HARMLESS = ("PATCH", "PUT", "DELETE")
_PLACEHOLDER = re.compile(r"\{[^}]*\}")


def ask_paths(facts: ResolvedOpenPaths, base: str, key: str) -> PathFacts:
    """Request all routes of the engine at URL ``base``; ``key`` serves only to read a guarded OpenAPI document."""
    effects = {route["path"]: route["gives"] for route in facts["routes"]}
    listed = _openapi_methods(base + facts["lists"], key) if facts["lists"] else {}

    def status_of(path: str) -> int | None:
        method = facts["ask"]
        if method != "GET":
            safe_methods = [candidate for candidate in _HARMLESS if candidate.lower() not in listed.get(path, ())]
            if not safe_methods:
                return CLOSED[-1]  # every method could start an action
            method = safe_methods[0]
        return _request(base + _without_placeholders(path), method)[0]

    return _request_paths(dict.fromkeys(listed, "") | effects, status_of)


def ask_gateway_paths(facts: ResolvedOpenPaths, health: str, ask: Callable[[str, str], int]) -> PathFacts:
    """Request the routes at the gateway by ``ask(method, path)``, except the health paths, which are always open."""
    effects = {route["path"]: route["gives"] for route in facts["routes"]}
    skipped = ("/health", health) if facts["ask"] == "GET" else ()

    def status_of(path: str) -> int | None:
        if path in skipped:
            return CLOSED[-1]
        try:
            return ask(facts["ask"], _without_placeholders(path))
        except (OSError, http.client.HTTPException):
            return None

    return _request_paths(effects, status_of)


def _request_paths(effects: Mapping[str, str], status_of: Callable[[str], int | None]) -> PathFacts:
    result: PathFacts = {"asked": 0, "open": [], "error": ""}
    for path in sorted(effects):
        status = status_of(path)
        if status is None:
            # A server that hangs would cost a timeout for every further path.
            return {**result, "error": f"no answer to {path}"}
        result["asked"] += 1
        if status not in CLOSED:
            result["open"].append({"path": path, "gives": effects[path], "status": status})
    return result


def _without_placeholders(path: str) -> str:
    return _PLACEHOLDER.sub("x", path)


def _request(url: str, method: str, key: str = "") -> tuple[int | None, bytes]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 (our own address)
    try:
        with opener().open(request, timeout=_TIMEOUT_S) as answer:
            return int(answer.status), answer.read(_MAX_BYTES)
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, ValueError, http.client.HTTPException):
        return None, b""


def _openapi_methods(url: str, key: str) -> dict[str, Sequence[str]]:
    """By path, the lower-case methods in the OpenAPI document at ``url``; empty if there is no document."""
    for given_key in ("", key):
        status, document = _request(url, "GET", given_key)
        if status == 200:
            try:
                return {str(path): list(map(str, methods)) for path, methods in json.loads(document)["paths"].items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                return {}
    return {}
