"""One experiment on the box: its steps are measured and kept one by one, then put together as results.

`<result_dir>/steps/NN.json` holds one step, `<result_dir>/<arm>.json` an arm's result, and `<result_dir>/ladder.json`
the load ladder of a profile that has one. A run that was killed goes on with the first step that is missing.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .client import CUT_OFF, Endpoint
from .cost import memory_told
from .crossover import fill
from .direct import opener
from .ladder import ASK_AGAIN, ASK_AGAIN_S, beside_all, run_ladder
from .ladder_files import LadderFile, read_ladder, write_ladder
from .ladder_plan import heading, plan_of
from .ladder_text import step_line
from .ladder_watch import RuntimeWatch
from .measure import StepOptions, run_step
from .problems import HouseError, Problem
from .ready import told_of_start
from .results import assemble
from .runtimes import Runtime, runtime_of
from .schedule import offer

# What an engine says of itself while it starts, where the two arms may differ beside speculation.
_TOLD_IN_LOG = {
    "model_runner": re.compile(r"[Uu]sing (?:the )?(V[12]) [Mm]odel [Rr]unner"),
    "async_scheduling": re.compile(r"[Aa]sync(?:hronous)? scheduling (?:is|.{0,90}will be) (enabled|disabled)"),
}


class Tell(Protocol):
    """Takes signs of life: `progress.Progress`."""

    def __call__(self, event: Mapping[str, Any], important: bool = False) -> None:
        """Take one event."""


def step_file(resolved: Mapping[str, Any], step: Mapping[str, Any]) -> Path:
    """Return where a step's measurement is kept."""
    return Path(resolved["result_dir"], str(step["file"]))


def result_file(resolved: Mapping[str, Any], arm: str) -> Path:
    """Return where an arm's result is kept."""
    return Path(resolved["result_dir"]) / f"{arm}.json"


def ladder_file(resolved: Mapping[str, Any]) -> Path:
    """Return where the load ladder is kept, where the profile has one."""
    return Path(resolved["result_dir"]) / "ladder.json"


def measure_one_step(
    resolved: Mapping[str, Any],
    step: Mapping[str, Any],
    request_timeout_s: float,
    tell: Tell,
) -> Path:
    """Measure the arms that ``step`` names, keep it, and return its file. Raises HouseError.

    Where the profile has a ladder, the same starts of the arms are measured under load before the step is done. A
    run that is killed meanwhile finds what comes first in `steps/NN.part.json`, and the ladder's steps in its file.

    When an engine dies, the step is measured again, once, on arms that were all started anew, and says so in its
    ``notes``. The second time nothing is kept of it, so that the next run measures it.
    """
    key = Path(resolved["key_file"]).read_text("utf-8").strip()
    experiment, site = resolved["experiment"], resolved["site"]
    metrics_path = (resolved["engine"].get("metrics") or {}).get("path", "/metrics")
    endpoints = [
        Endpoint(
            arm,
            f"http://{site['host']}:{port}",
            resolved["target"]["served_name"],
            key,
            metrics_path=metrics_path,
        )
        for arm, port in step["arms"].items()
    ]
    runtime = runtime_of(site)
    what = f"step {step['number']} of {len(experiment['steps'])}"

    def progress(event: Mapping[str, Any]) -> None:
        tell({**event, "text": f"{what}: {event.get('text', '')}"})

    path = step_file(resolved, step)
    part = path.with_suffix(".part.json")
    if part.exists():
        measured = json.loads(part.read_text("utf-8"))
    else:
        options = StepOptions(
            concurrency=experiment["concurrency"],
            first_round=step["round"],
            temperatures=tuple(experiment["temperatures"]),
            timeout_s=request_timeout_s,
        )
        suites = [resolved["suites"][name] for name in step["suites"]]
        watch = RuntimeWatch(runtime, resolved, endpoints)
        measured = _measure_alive(endpoints, suites, options, runtime, watch, progress)
        for endpoint in endpoints:
            arm = endpoint.arm
            printed = runtime.printed(arm)
            measured["arms"][arm]["engine"] = {**_observed(endpoint, printed), **told_of_start(site["home"], arm)}
            measured["arms"][arm]["memory"] = memory_told(printed)
    if step["round"] <= experiment.get("ladder", {}).get("rounds", 0):
        _write(part, measured)
        _measure_ladder(resolved, step["round"], endpoints, runtime, request_timeout_s, progress, tell)
    _write(path, measured)
    part.unlink(missing_ok=True)
    return path


def _measure_alive(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Mapping[str, Any]],
    options: StepOptions,
    runtime: Runtime,
    watch: RuntimeWatch,
    progress: Callable[[Mapping[str, Any]], None],
) -> dict[str, Any]:
    """Measure a step on engines that live until its end, each with its lines about drafting in ``log``.

    Raises HouseError when an engine dies the second time, or does not come back.
    """
    notes: list[str] = []
    while True:
        marks = {endpoint.arm: runtime.mark(endpoint.arm) for endpoint in endpoints}
        trouble: HouseError | None = None
        measured: dict[str, Any] = {}
        try:
            measured = run_step(endpoints, suites, options, progress)
        except HouseError as error:
            trouble = error
        dead = [endpoint.arm for endpoint in endpoints if _died(watch, endpoint.arm, measured)]
        if not dead:
            if trouble is not None:
                raise trouble
            for arm, mark in marks.items():
                measured["arms"][arm]["log"] = _speculation_lines(runtime.printed(arm, mark))
            return {**measured, "notes": notes}
        if notes:
            raise HouseError(
                Problem(
                    f"the engine died again after it was started again: {', '.join(dead)}",
                    "an engine that lives until the end of a step",
                    f"look at {runtime.log_name(dead[0])}, and run again: it goes on with this step",
                    f"round {options.first_round}",
                )
            )
        progress({"done": 0, "total": 1, "phase": "restart", "text": f"{', '.join(dead)} died", "eta_s": None})
        for endpoint in endpoints:
            # The others as well: an engine that was asked all of it remembers the answers, which is no fresh start.
            if endpoint.arm not in dead:
                runtime.stop(endpoint.arm)
            said = asyncio.run(watch.bring_back(endpoint.arm))
            what = f"{endpoint.arm} died" if endpoint.arm in dead else f"{endpoint.arm}, beside one that died"
            notes.append(f"round {options.first_round}: {what}: {said}; the step was measured again")


def _died(watch: RuntimeWatch, arm: str, measured: Mapping[str, Any]) -> bool:
    """Return whether an arm died while it was measured; where answers are missing it is asked for a moment."""
    requests = measured["arms"][arm]["requests"] if measured else []
    lost = not requests or any(one["http_status"] is None or one["status"] == CUT_OFF for one in requests)
    for attempt in range(ASK_AGAIN if lost else 1):
        if attempt:
            time.sleep(ASK_AGAIN_S)
        if asyncio.run(watch.died(arm)):
            return True
    return False


def _measure_ladder(
    resolved: Mapping[str, Any],
    number: int,
    endpoints: Sequence[Endpoint],
    runtime: Runtime,
    request_timeout_s: float,
    progress: Callable[[Mapping[str, Any]], None],
    tell: Tell,
) -> None:
    """Measure round ``number`` of the profile's ladder on the arms that are served now."""
    experiment = resolved["experiment"]
    suites = [resolved["suites"][name] for name in experiment["suites"]]
    plan = plan_of(experiment["ladder"], suites, experiment["once"], [number], request_timeout_s)
    file = LadderFile(ladder_file(resolved), heading(plan, resolved["profile"], resolved["key"]))

    def told(step: Mapping[str, Any]) -> None:
        tell({"line": step_line(step, plan.load)}, important=True)

    run_ladder(
        endpoints,
        suites,
        plan,
        file,
        watch=RuntimeWatch(runtime, resolved, endpoints),
        beside=beside_all(),
        on_progress=progress,
        on_step=told,
    )


def assemble_results(resolved: Mapping[str, Any]) -> list[Path]:
    """Write the result of every arm from the kept steps, and finish the ladder; return the files."""
    steps = [json.loads(step_file(resolved, step).read_text("utf-8")) for step in resolved["experiment"]["steps"]]
    files = []
    for arm in resolved["arms"]:
        own = [step["arms"][arm] for step in steps if arm in step["arms"]]
        result = assemble(
            steps,
            arm,
            profile=resolved["profile"],
            key=resolved["key"],
            engine={
                **{name: resolved["engine"][name] for name in ("id", "name", "version", "runtime")},
                **own[-1]["engine"],
            },
            log="".join(part["log"] for part in own),
        )
        result["memory"] = own[-1].get("memory") or {}
        files.append(_write(result_file(resolved, arm), result))
    return files + _finish_ladder(resolved)


def _finish_ladder(resolved: Mapping[str, Any]) -> list[Path]:
    """Add to the ladder what all of its steps together say; return its file, or nothing without a ladder."""
    path = ladder_file(resolved)
    if "ladder" not in resolved["experiment"] or not path.exists():
        return []
    ladder = read_ladder(path)
    ladder["crossover"] = fill(ladder)
    ladder["schedule"] = offer(ladder, resolved)
    write_ladder(path, ladder)
    return [path]


def _write(path: Path, data: Mapping[str, Any]) -> Path:
    """Write JSON so that a reader finds all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    temporary.replace(path)
    return path


def _speculation_lines(text: str) -> str:
    """Return what the engine's log says of drafting."""
    return "".join(line for line in text.splitlines(keepends=True) if "SpecDecoding metrics" in line)


def told_in_log(text: str) -> dict[str, str]:
    """Return what the engine's log says of how it runs; the last start is the one that was measured."""
    found = {name: pattern.findall(text) for name, pattern in _TOLD_IN_LOG.items()}
    return {name: words[-1] for name, words in found.items() if words}


def _observed(endpoint: Endpoint, log: str) -> dict[str, Any]:
    """Return what the engine itself says it is: its version, its context, what it switched on its own."""
    told: dict[str, Any] = {}
    for path, name in (("/version", "version_answered"), ("/v1/models", "models")):
        request = urllib.request.Request(endpoint.root + path, headers=endpoint.headers)  # noqa: S310
        try:
            with opener().open(request, timeout=10) as answer:
                data = json.load(answer)
        except (OSError, ValueError, urllib.error.URLError):
            continue
        if name == "version_answered":
            told[name] = data.get("version")
        else:
            entry: dict[str, Any] = next(iter(data.get("data") or []), {})
            told["max_model_len_answered"] = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
    told.update(told_in_log(log))
    return {name: value for name, value in told.items() if value is not None}
