"""Wait for an engine by asking it: ready is when it names our model, not when some time has passed."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import object_in, replace_file
from ..core.http import opener
from ..core.messages import explained
from ..core.step_clock import read_step_clock
from .first_request import ask_once
from .oom_killer import DO as OUT_OF_MEMORY_DO
from .oom_killer import Kills, is_out_of_memory, read_kills, why_it_died
from .runtimes import Runtime, State, is_same_start, process_age_of

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell
    from drafthouse.core.step_clock import StepClock


class Ready(TypedDict, total=False):
    """An arm's last start: when (epoch seconds), and how long it took.

    Not ``seen`` means that it was ready at the first look: ``ready_s`` is then the most that it can have been.
    """

    started: float
    clock: StepClock | None
    ready_s: float
    seen: bool


class ToldOfStart(TypedDict, total=False):
    """What a result says of a start: seconds until it was ready, and whether that is only the most it can have been."""

    ready_s: float
    ready_at_most: bool


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
    progress: Tell,
    keep: Path | None = None,
    request_timeout_s: float | None = None,
    stranger: Callable[[], Problem | None] = lambda: None,
) -> float:
    """The seconds from the engine's start until it answered and named ``model``.

    With ``keep``, a file, they are also kept there for the result of this start (`read_ready`). With
    ``request_timeout_s`` it must then answer a real request, too, in so many seconds. ``stranger`` tells of another
    program at the engine's port: whatever that answers is not ours.
    Raises DrafthouseError with the engine's own last lines when it ended, or did not get ready in time.
    """
    # By clocks that nobody sets; the wall clock is only told.
    begun, since_s = time.time(), time.monotonic()
    log = runtime.log_name(name)
    start = begun
    first: State | None = None
    kills: Kills | None = None
    looks = 0
    while True:
        looks += 1
        state = runtime.state(name)
        if first is None and state.started is not None:
            first, start = state, state.started
        waited_s = process_age_of(state)
        if waited_s is None:
            waited_s = max(0.0, begun - start) + time.monotonic() - since_s
        if looks == 1:
            if state.running:
                kills = read_kills(state.pid)
            _refuse(stranger())
        if _has_ended(state, first):
            _refuse(stranger())
            raise DrafthouseError(_died(runtime, name, state, kills))
        if _answers(base_url + health) and _serves(base_url, model, key, log):
            _refuse(stranger())
            if keep is not None:
                _keep_ready(keep, start, waited_s, seen=looks > 1)
            if request_timeout_s is not None:
                _ask(runtime, name, base_url, model, key, request_timeout_s, kills)
            return waited_s
        if time.monotonic() > since_s + timeout_s:
            raise one_problem(
                "engine-not-ready",
                f"the {name} arm was not ready after {timeout_s:.0f} s; its last lines:\n"
                + runtime.tail(name, _LAST_LINES),
                f"an answer from {base_url}{health}",
                f"read {log}; increase serve_ready_timeout_s for a slow disk or a long compilation",
            )
        progress({"text": f"waiting for the {name} arm, {waited_s:.0f} s: {runtime.tail(name, 1)[:100]}"})
        time.sleep(_ASK_EVERY_S)


def _has_ended(state: State, first: State | None) -> bool:
    """Whether the start that was seen first is over: nothing runs, or a later start does."""
    if not state.running:
        return True
    if first is None or state.started is None:
        return False
    return not is_same_start(state, first)


def _refuse(problem: Problem | None) -> None:
    if problem is not None:
        raise DrafthouseError(problem)


def _ask(
    runtime: Runtime, name: str, base_url: str, model: str, key: str, timeout_s: float, kills: Kills | None
) -> None:
    """Have the engine answer a request; of one that ended meanwhile that is said, with its last lines."""
    try:
        ask_once(base_url, model, key, timeout_s, do=f"read {runtime.log_name(name)}")
    except DrafthouseError:
        state = runtime.state(name)
        if not state.running:
            raise DrafthouseError(_died(runtime, name, state, kills)) from None
        raise


def ready_file(home: str | Path, name: str) -> Path:
    """Where the start-up time of an arm is kept."""
    return Path(home) / "run" / f"{name}.ready.json"


def _keep_ready(path: Path, start: float, seconds: float, *, seen: bool) -> None:
    """Keep the start-up time, unless the one of this very start is there: a later look says only that it still runs."""
    if read_ready(path).get("started") == start:
        return
    with contextlib.suppress(OSError):  # a number for the report is no reason to stop a run
        kept = {"started": start, "clock": read_step_clock(seconds), "ready_s": round(seconds, 2), "seen": seen}
        replace_file(path, f"{json.dumps(kept)}\n", None)


def read_ready(path: Path) -> Ready:
    """What is known of an arm's last start; {} of nothing."""
    return cast("Ready", object_in(path))


def told_of_start(home: str | Path, name: str) -> ToldOfStart:
    """What a result's `engine` says of the start of an arm."""
    kept = read_ready(ready_file(home, name))
    if "ready_s" not in kept:
        return {}
    if kept.get("seen"):
        return {"ready_s": kept["ready_s"]}
    return {"ready_s": kept["ready_s"], "ready_at_most": True}


def _died(runtime: Runtime, name: str, state: State, kills: Kills | None) -> Problem:
    why = why_it_died(state.why, kills)
    printed = runtime.tail(name, _LAST_LINES)
    advice = ""
    if is_out_of_memory(why):
        advice = f"{OUT_OF_MEMORY_DO}; then "
    known = explained(printed)
    if known:
        advice += f"{known.cause}: {known.do}; then "
    return Problem(
        "engine-died",
        f"the {name} arm died ({why}); its last lines:\n{printed}",
        "an engine that keeps running and answers",
        f"{advice}read {runtime.log_name(name)}; run its serve.sh manually to see the same error",
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
        raise one_problem(
            "another-server-answers",
            f"{base_url}/v1/models answered {error.code}",
            "200 with the engine's key",
            f"check whether another server listens on that port, and read {log}",
        ) from error
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
    if model in listed:
        return True
    raise one_problem(
        "another-server-answers",
        f"a server that serves {listed}",
        f"the model '{model}'",
        f"stop the other server at {base_url}",
    )
