"""One small real request to a server: that it says it is healthy is not yet an answer. Standard library only."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from ..core.errors import one_problem
from ..core.http import opener

# The first request after a start may compile something yet.
REQUEST_S = 120.0
_TOKENS = 8
_BODY_SHOWN = 200  # characters of an error's body in a message


@dataclass(frozen=True)
class Answered:
    """An answer: tokens by the server's own count, and seconds from the request to its end."""

    tokens: int
    seconds: float


def ask_once(
    base_url: str, model: str, key: str, timeout_s: float = REQUEST_S, do: str = "", tokens: int = _TOKENS
) -> Answered:
    """Ask the server for a few tokens. Raises DrafthouseError where none come in time; ``do`` is its advice."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Say yes."}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(  # noqa: S310 (http to the box's own server)
        f"{base_url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    begun = time.monotonic()
    try:
        with opener().open(request, timeout=timeout_s) as answer:
            answered = int((json.load(answer).get("usage") or {}).get("completion_tokens") or 0)
        if answered:
            return Answered(answered, time.monotonic() - begun)
        found = "an answer without tokens"
    except urllib.error.HTTPError as error:
        found = _refusal(error)
    except (OSError, http.client.HTTPException) as error:
        found = f"no answer: {error}"
        if isinstance(error, TimeoutError) or "timed out" in str(error):
            found = f"nothing within {timeout_s:.0f} s"
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        found = f"an answer that cannot be parsed: {error}"
    raise one_problem(
        "request-failed",
        f"the server is running but does not answer a request: {found}",
        f"tokens from {base_url}/v1/chat/completions",
        do or "read the engine's log; a slow first answer needs a larger serve_request_timeout_s",
    )


def _refusal(error: urllib.error.HTTPError) -> str:
    """The status of an error and the first 200 characters of its body, where these arrive."""
    try:
        body = error.read(_BODY_SHOWN).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        body = ""
    if not body:
        return f"status {error.code}"
    return f"status {error.code}: {body}"
