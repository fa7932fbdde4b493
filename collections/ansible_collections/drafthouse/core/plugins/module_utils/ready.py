"""Wait for an engine by asking it: ready is when it names our model, not when some time has passed."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .direct import opener
from .first_request import ask_once
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
    keep: Path | None = None,
    request_timeout_s: float | None = None,
) -> float:
    """Return the seconds from the engine's start until it answered and named ``model``.

    With ``keep``, a file, they are also kept there for the result of this start (`read_ready`). With
    ``request_timeout_s`` it must then answer a real request, too, in so many seconds.
    Raises HouseError with the engine's own last lines when it ended, or did not get ready in time.
    """
    begun, end = time.time(), time.monotonic() + timeout_s
    log = runtime.log_name(name)
    start: float | None = None
    looks = 0
    while True:
        looks += 1
        state = runtime.state(name)
        start = start or state.started
        if not state.running or (start is not None and state.started not in (start, None)):
            raise HouseError(_died(runtime, name, state))
        if _answers(base_url + health) and _serves(base_url, model, key, log):
            seconds = max(0.0, time.time() - (start or begun))
            if keep is not None:
                _keep_ready(keep, start or begun, seconds, seen=looks > 1)
            if request_timeout_s is not None:
                _ask(runtime, name, base_url, model, key, request_timeout_s)
            return seconds
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


def _ask(runtime: Runtime, name: str, base_url: str, model: str, key: str, timeout_s: float) -> None:
    """Have the engine answer a request; of one that ended meanwhile that is said, with its last lines."""
    try:
        ask_once(base_url, model, key, timeout_s, do=f"read {runtime.log_name(name)}")
    except HouseError:
        state = runtime.state(name)
        if not state.running:
            raise HouseError(_died(runtime, name, state)) from None
        raise


def ready_file(home: str | Path, name: str) -> Path:
    """Return where the start-up time of an arm is kept."""
    return Path(home) / "run" / f"{name}.ready.json"


def _keep_ready(path: Path, start: float, seconds: float, *, seen: bool) -> None:
    """Keep the start-up time, unless the one of this very start is there: a later look says only that it still runs."""
    if read_ready(path).get("started") == start:
        return
    with contextlib.suppress(OSError):  # a number for the report is no reason to stop a run
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({"started": start, "ready_s": round(seconds, 2), "seen": seen}) + "\n", "utf-8")
        temporary.replace(path)


def read_ready(path: Path) -> dict[str, Any]:
    """Return what is known of an arm's last start: started (epoch seconds), ready_s, seen; {} of nothing.

    Not ``seen`` means that it was ready at the first look: ready_s is then the most that it can have been.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def told_of_start(home: str | Path, name: str) -> dict[str, Any]:
    """Return what a result's `engine` says of the start of an arm: ready_s, and ready_at_most where that is a bound."""
    kept = read_ready(ready_file(home, name))
    if "ready_s" not in kept:
        return {}
    return {"ready_s": kept["ready_s"], **({} if kept.get("seen") else {"ready_at_most": True})}


def _died(runtime: Runtime, name: str, state: State) -> Problem:
    return Problem(
        f"the {name} arm died ({state.why}); its last lines:\n{runtime.tail(name, _LAST_LINES)}",
        "an engine that stays up and answers",
        f"read {runtime.log_name(name)}; run its serve.sh by hand to see the same error",
    )


def _answers(url: str) -> bool:
    try:
        with opener().open(url, timeout=5) as answer:
            return int(answer.status) == 200
    except (OSError, urllib.error.URLError):
        return False


def _serves(base_url: str, model: str, key: str, log: str) -> bool:
    request = urllib.request.Request(f"{base_url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    try:
        with opener().open(request, timeout=5) as answer:
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
