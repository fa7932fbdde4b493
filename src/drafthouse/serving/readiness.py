"""Wait until an engine is ready: its health check succeeds and its /v1/models lists the served model."""

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
from ..core.messages import last_known_message
from ..core.step_clock import read_step_clock
from .first_request import ask_once
from .oom_killer import DO as OUT_OF_MEMORY_DO
from .oom_killer import Kills, is_out_of_memory, read_kills, why_it_died
from .runtimes import Runtime, State, is_same_start, process_age_of

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell
    from drafthouse.core.step_clock import StepClock


class Ready(TypedDict, total=False):
    """An arm's last start, as its file has it."""

    started: float  # unix seconds
    clock: StepClock | None  # the start by the boot clock; None: the system has none
    ready_s: float  # seconds from the start until it was ready
    seen: bool  # False: it was ready at the first check, so ``ready_s`` is only an upper bound


class StartFacts(TypedDict, total=False):
    """A server start in a result."""

    ready_s: float  # seconds until it was ready
    ready_at_most: bool  # True: they are an upper bound


_CHECK_EVERY_S = 0.2
_PAGE_S = 5  # timeout of the health page and of the list of models
_LAST_LINES = 15  # of the engine's log, in a message
_SEARCHED_LINES = 80  # vLLM's front end prints some 50 lines after the error of its engine process


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
    """Wait until the arm ``name`` is ready; return the seconds since its start.

    ``health``: path of the health page. ``model``: the name that /v1/models must list. ``keep``: a file to which the
    seconds are written, for the benchmark result (`read_ready`). With ``request_timeout_s``, the engine must also
    answer a completion request within so many seconds. ``stranger`` returns a problem if another program listens on
    the engine's port; it is asked at the first check, and before any success or death is believed. Raises
    DrafthouseError with the last lines of the engine's log if it ends or is not ready within ``timeout_s``.
    """
    begun = time.time()
    since_s = time.monotonic()
    start = begun
    first: State | None = None  # the first state with a start
    kills: Kills | None = None  # the OOM killer's counters before the engine's death, if it dies
    checks = 0
    while True:
        checks += 1
        state = runtime.state(name)
        if first is None and state.started is not None:
            first = state
            start = state.started
        waited_s = process_age_of(state)
        if waited_s is None:
            # The wall clock, which can be set, measures only the seconds before this call.
            waited_s = max(0.0, begun - start) + time.monotonic() - since_s
        if checks == 1:
            if state.running:
                kills = read_kills(state.pid)
            _raise_if(stranger())
        if _start_has_ended(state, first):
            _raise_if(stranger())
            raise DrafthouseError(_death_problem(runtime, name, state, kills))
        if _is_healthy(base_url + health) and _serves_model(base_url, model, key, runtime.log_name(name)):
            _raise_if(stranger())
            if keep is not None:
                _keep_ready(keep, start, waited_s, seen=checks > 1)
            if request_timeout_s is not None:
                _request_answer(
                    runtime, name, base_url=base_url, model=model, key=key, timeout_s=request_timeout_s, kills=kills
                )
            return waited_s
        if time.monotonic() > since_s + timeout_s:
            raise DrafthouseError(_late_problem(runtime, name, base_url + health, timeout_s))
        progress({"text": f"waiting for the {name} arm, {waited_s:.0f} s: {runtime.tail(name, 1)[:100]}"})
        time.sleep(_CHECK_EVERY_S)


def _start_has_ended(state: State, first: State | None) -> bool:
    """True if the start that was seen ``first`` is over: the arm does not run, or runs after a later start."""
    if not state.running:
        return True
    if first is None or state.started is None:
        return False
    return not is_same_start(state, first)


def _raise_if(problem: Problem | None) -> None:
    if problem is not None:
        raise DrafthouseError(problem)


def _request_answer(
    runtime: Runtime, name: str, *, base_url: str, model: str, key: str, timeout_s: float, kills: Kills | None
) -> None:
    """Send one request. Raises DrafthouseError if it fails, with the last lines of the log if the engine ended."""
    try:
        ask_once(base_url, model, key, timeout_s, do=f"read {runtime.log_name(name)}")
    except DrafthouseError:
        state = runtime.state(name)
        if not state.running:
            raise DrafthouseError(_death_problem(runtime, name, state, kills)) from None
        raise


def _late_problem(runtime: Runtime, name: str, page: str, timeout_s: float) -> Problem:
    """The problem of an arm that runs, and is not ready in time; ``page``: URL of its health page."""
    return Problem(
        "engine-not-ready",
        f"the {name} arm was not ready after {timeout_s:.0f} s; its last lines:\n" + runtime.tail(name, _LAST_LINES),
        f"an answer from {page}",
        f"read {runtime.log_name(name)}; increase serve_ready_timeout_s for a slow disk or a long compilation",
    )


def ready_file(home: str | Path, name: str) -> Path:
    """The file with the start-up time of an arm."""
    return Path(home) / "run" / f"{name}.ready.json"


def _keep_ready(path: Path, start: float, seconds: float, *, seen: bool) -> None:
    """Write the start-up time, unless the file has it for this start: a later check finds the arm ready at once."""
    if read_ready(path).get("started") == start:
        return
    with contextlib.suppress(OSError):  # the report can do without this figure
        kept = {"started": start, "clock": read_step_clock(seconds), "ready_s": round(seconds, 2), "seen": seen}
        replace_file(path, f"{json.dumps(kept)}\n", None)


def read_ready(path: Path) -> Ready:
    """The arm's last start, from the file of `ready_file`; {} if it cannot be read."""
    return cast("Ready", object_in(path))


def start_facts(home: str | Path, name: str) -> StartFacts:
    """The last start of an arm, for the `engine` part of a result; {} if it is not known."""
    kept = read_ready(ready_file(home, name))
    if "ready_s" not in kept:
        return {}
    if kept.get("seen"):
        return {"ready_s": kept["ready_s"]}
    return {"ready_s": kept["ready_s"], "ready_at_most": True}


def _death_problem(runtime: Runtime, name: str, state: State, kills: Kills | None) -> Problem:
    """The problem of an arm that ended; ``kills``: the OOM killer's counters while it ran, None if not read."""
    why = why_it_died(state.why, kills)
    printed = runtime.tail(name, _LAST_LINES)
    advice = ""
    if is_out_of_memory(why):
        advice = f"{OUT_OF_MEMORY_DO}; then "
    if explained := last_known_message(runtime.tail(name, _SEARCHED_LINES).splitlines()):
        line, explanation = explained
        advice += f"{explanation.cause} ({line.strip()[-200:]}): {explanation.do}; then "
    return Problem(
        "engine-died",
        f"the {name} arm died ({why}); its last lines:\n{printed}",
        "an engine that keeps running and answers",
        f"{advice}read {runtime.log_name(name)}; run its serve.sh manually to see the same error",
    )


def _is_healthy(url: str) -> bool:
    try:
        with opener().open(url, timeout=_PAGE_S) as answer:
            return int(answer.status) == 200
    except (OSError, urllib.error.URLError):
        return False


def _serves_model(base_url: str, model: str, key: str, log: str) -> bool:
    """True if /v1/models lists the model, False if it does not answer (yet) or not in the API's form.

    Raises DrafthouseError for an answer that is not our engine's: a refusal, or a list without the model.
    """
    request = urllib.request.Request(f"{base_url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    try:
        with opener().open(request, timeout=_PAGE_S) as answer:
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
