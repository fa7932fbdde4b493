"""Wait for an engine by asking it: ready is when it names our model, not when some time has passed."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from .problems import HouseError, Problem
from .runtimes import Runtime, State

_ASK_EVERY_S = 0.2
_LAST_LINES = 15


def wait_until_ready(
    runtime: Runtime,
    *,
    name: str,
    base_url: str,
    health: str,
    model: str,
    key: str,
    timeout_s: float,
    progress: Callable[[Mapping[str, Any]], None],
) -> float:
    """Return the seconds from the engine's start until it answered and named ``model``.

    Raises HouseError with the engine's own last lines when it ended, or did not get ready in time.
    """
    begun, end = time.time(), time.monotonic() + timeout_s
    log = runtime.log_name(name)
    start: float | None = None
    while True:
        state = runtime.state(name)
        start = start or state.started
        if not state.running or (start is not None and state.started not in (start, None)):
            raise HouseError(_died(runtime, name, state))
        if _answers(base_url + health) and _serves(base_url, model, key, log):
            return max(0.0, time.time() - (start or begun))
        if time.monotonic() > end:
            raise HouseError(
                Problem(
                    f"the {name} arm was not ready after {timeout_s:.0f} s; its last lines:\n"
                    + runtime.tail(name, _LAST_LINES),
                    f"an answer from {base_url}{health}",
                    f"read {log}; a slow disk or a long compilation needs a larger serve_ready_timeout_s",
                )
            )
        waited = time.time() - (start or begun)
        progress({"text": f"waiting for the {name} arm, {waited:.0f} s: {runtime.tail(name, 1)[:100]}"})
        time.sleep(_ASK_EVERY_S)


def _died(runtime: Runtime, name: str, state: State) -> Problem:
    return Problem(
        f"the {name} arm died ({state.why}); its last lines:\n{runtime.tail(name, _LAST_LINES)}",
        "an engine that stays up and answers",
        f"read {runtime.log_name(name)}; run its serve.sh by hand to see the same error",
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (our own http address)
            return int(answer.status) == 200
    except (OSError, urllib.error.URLError):
        return False


def _serves(base_url: str, model: str, key: str, log: str) -> bool:
    request = urllib.request.Request(f"{base_url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 (our own http address)
            listed = [entry.get("id") for entry in json.load(answer).get("data", [])]
    except urllib.error.HTTPError as error:
        raise HouseError(
            Problem(
                f"{base_url}/v1/models answered {error.code}",
                "200 with the key that we gave the engine",
                f"see whether another server listens on that port, and read {log}",
            )
        ) from error
    except (OSError, ValueError):
        return False
    if model in listed:
        return True
    raise HouseError(
        Problem(f"a server that serves {listed}", f"the model '{model}'", f"end the other server at {base_url}")
    )
