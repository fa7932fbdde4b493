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
_WORDS = 200  # characters of an error's text that are shown


@dataclass(frozen=True)
class Answered:
    """What came: tokens by the server's own count, and after how many seconds."""

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
        found = "" if answered else "an answer without tokens"
    except urllib.error.HTTPError as error:
        said = _said(error)
        answered, found = 0, f"status {error.code}" + (f": {said}" if said else "")
    except (OSError, http.client.HTTPException) as error:
        late = isinstance(error, TimeoutError) or "timed out" in str(error)
        answered, found = 0, f"nothing within {timeout_s:.0f} s" if late else f"no answer: {error}"
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        answered, found = 0, f"an answer that cannot be parsed: {error}"
    if found:
        raise one_problem(
            "request-failed",
            f"the server is running but does not answer a request: {found}",
            f"tokens from {base_url}/v1/chat/completions",
            do or "read the engine's log; a slow first answer needs a larger serve_request_timeout_s",
        )
    return Answered(answered, time.monotonic() - begun)


def _said(error: urllib.error.HTTPError) -> str:
    """The beginning of an error's text; '' where it breaks off, or never comes."""
    try:
        return error.read(_WORDS).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        return ""
