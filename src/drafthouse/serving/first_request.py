"""Send a short completion request: a server that passes its health check may not answer. Standard library only."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from ..core.errors import one_problem
from ..core.http import opener

# Seconds until an answer: the engine may compile kernels at the first request after a start.
REQUEST_S = 120.0
_TOKENS = 8  # enough to show that decoding works
_BODY_SHOWN = 200  # bytes of an error's body that a message shows


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    tokens: int  # its length, as the server counts it
    seconds: float  # from the request to its end


def ask_once(
    base_url: str, model: str, key: str, timeout_s: float = REQUEST_S, do: str = "", tokens: int = _TOKENS
) -> Answer:
    """Request ``tokens`` tokens. Raises DrafthouseError if none come within ``timeout_s``.

    ``model``: its name in the API. ``key``: the API key. ``do``: the advice of the error, '' for a general one.
    """
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
        with opener().open(request, timeout=timeout_s) as response:
            answer_tokens = int((json.load(response).get("usage") or {}).get("completion_tokens") or 0)
        if answer_tokens:
            return Answer(answer_tokens, time.monotonic() - begun)
        failure = "an answer without tokens"
    except urllib.error.HTTPError as error:
        failure = _refusal(error)
    except (OSError, http.client.HTTPException) as error:
        failure = f"no answer: {error}"
        if isinstance(error, TimeoutError) or "timed out" in str(error):
            failure = f"nothing within {timeout_s:.0f} s"
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        failure = f"an answer that cannot be parsed: {error}"
    raise one_problem(
        "request-failed",
        f"the server is running but does not answer a request: {failure}",
        f"tokens from {base_url}/v1/chat/completions",
        do or "read the engine's log; a slow first answer needs a larger serve_request_timeout_s",
    )


def _refusal(error: urllib.error.HTTPError) -> str:
    """The status of an error, and the begin of its body (`_BODY_SHOWN`) if that can be read."""
    try:
        body = error.read(_BODY_SHOWN).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        body = ""
    if not body:
        return f"status {error.code}"
    return f"status {error.code}: {body}"
