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
_TIMEOUT_S = 10.0  # of one request
_MAX_BYTES = 8_000_000  # of a body; an OpenAPI document is far smaller
#: Methods that hardly any engine route implements. Status 405 (wrong method) then shows that a path exists and is open.
_HARMLESS = ("PATCH", "PUT", "DELETE")
_PLACEHOLDER = re.compile(r"\{[^}]*\}")


def ask_paths(facts: ResolvedOpenPaths, base: str, key: str) -> PathFacts:
    """Request all routes of the engine at URL ``base``; ``key`` serves only to read a guarded OpenAPI document.

    ``facts`` has the method for these requests (``ask``) and the path of the OpenAPI document (``lists``, or ''). GET
    starts no action. In place of any other method a harmless one is used that the path does not implement.
    """
    effects = {route["path"]: route["gives"] for route in facts["routes"]}
    listed = _openapi_methods(base + facts["lists"], key) if facts["lists"] else {}

    def status_of(path: str) -> int | None:
        """The status of the path without the key; None without an answer."""
        method = facts["ask"]
        if method != "GET":
            safe_methods = [candidate for candidate in _HARMLESS if candidate.lower() not in listed.get(path, ())]
            if not safe_methods:
                return CLOSED[-1]  # not requested, as every method could start an action: it counts as closed
            method = safe_methods[0]
        status, _ = _request(base + _without_placeholders(path), method)
        return status

    # A path that only the OpenAPI document lists has no known effect: "".
    return _request_paths(dict.fromkeys(listed, "") | effects, status_of)


def ask_gateway_paths(facts: ResolvedOpenPaths, health: str, ask: Callable[[str, str], int]) -> PathFacts:
    """Request the routes at the gateway by ``ask(method, path)``, except the health paths, which are always open."""
    effects = {route["path"]: route["gives"] for route in facts["routes"]}
    skipped = ("/health", health) if facts["ask"] == "GET" else ()

    def status_of(path: str) -> int | None:
        """The status of the path without the key; None without an answer. A skipped path counts as closed."""
        if path in skipped:
            return CLOSED[-1]
        try:
            return ask(facts["ask"], _without_placeholders(path))
        except (OSError, http.client.HTTPException):
            return None

    return _request_paths(effects, status_of)


def _request_paths(effects: Mapping[str, str], status_of: Callable[[str], int | None]) -> PathFacts:
    """The facts of the paths (keys of ``effects``) in alphabetical order, up to the first without an answer."""
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
    """The path with x in place of each parameter: /models/{name} becomes /models/x."""
    return _PLACEHOLDER.sub("x", path)


def _request(url: str, method: str, key: str = "") -> tuple[int | None, bytes]:
    """The status and the body: None and b"" without an answer, the status and b"" for an error."""
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
    """By path, the lower-case methods in the OpenAPI document at ``url``; empty if there is no document.

    The document is requested without the key, then with it. An unreadable one counts as none.
    """
    for given_key in ("", key):
        status, document = _request(url, "GET", given_key)
        if status == 200:
            try:
                return {str(path): list(map(str, methods)) for path, methods in json.loads(document)["paths"].items()}
            except (ValueError, LookupError, TypeError, AttributeError):
                return {}
    return {}
