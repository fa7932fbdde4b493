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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ..analysis.batch_k_schedule import offer
from ..analysis.cost import memory_told
from ..analysis.crossover import fill
from ..bench.client import Endpoint
from ..bench.foreign_load import wait_for_quiet, waited_in_vain
from ..bench.groups import StepOptions
from ..bench.instruments import beside_ladder
from ..bench.outcome import CUT_OFF
from ..bench.output_scoring import ANSWERS, score_answers
from ..bench.own_processes import own_pids
from ..bench.results import assemble
from ..bench.standstill import StoodStill
from ..bench.step import run_step
from ..bench.sweep.plan import heading, plan_of
from ..bench.sweep.recovery import RuntimeWatch
from ..bench.sweep.run import ASK_AGAIN, ASK_AGAIN_S, run_ladder
from ..bench.sweep.store import LadderFile, read_ladder, write_ladder
from ..bench.sweep.text import step_line
from ..core.errors import DrafthouseError, Problem
from ..core.http import opener
from ..core.kept_file import room_aside, write_whole
from ..core.step_clock import begun_s, seconds_apart
from ..prompts.suite_file import read_suites, without
from ..serving.oom_killer import DO as OUT_OF_MEMORY_DO
from ..serving.oom_killer import is_out_of_memory
from ..serving.readiness import read_ready, ready_file, told_of_start
from ..serving.runtimes import Runtime, runtime_of
from .kept_rounds import steps_until

if TYPE_CHECKING:
    from drafthouse.bench.output_scoring import Scoring
    from drafthouse.bench.result_types import EngineSeen, StepResult
    from drafthouse.bench.sweep.ladder_types import LadderStep
    from drafthouse.core.progress import Event
    from drafthouse.core.progress import Tell as Progress
    from drafthouse.profiles.planned_types import PlannedExperiment, PlannedStep
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.prompts.suite_types import Suite

# What an engine says of itself while it starts, where the two arms may differ beside speculation.
_TOLD_IN_LOG: dict[Literal["model_runner", "async_scheduling"], re.Pattern[str]] = {
    "model_runner": re.compile(r"[Uu]sing (?:the )?(V[12]) [Mm]odel [Rr]unner"),
    "async_scheduling": re.compile(r"[Aa]sync(?:hronous)? scheduling (?:is|.{0,90}will be) (enabled|disabled)"),
}


class Tell(Protocol):
    """Takes signs of life, and tells those that are important in any case: `progress.Progress`."""

    def __call__(self, event: Event, important: bool = False) -> None:
        """Take one event."""


def step_file(resolved: Run, step: PlannedStep) -> Path:
    """Return where a step's measurement is kept."""
    return Path(resolved["result_dir"], str(step["file"]))


def result_file(resolved: Run, arm: str) -> Path:
    """Return where an arm's result is kept."""
    return Path(resolved["result_dir"]) / f"{arm}.json"


def ladder_file(resolved: Run) -> Path:
    """Return where the load ladder is kept, where the profile has one."""
    return Path(resolved["result_dir"]) / "ladder.json"


def measure_one_step(
    resolved: Run,
    step: PlannedStep,
    request_timeout_s: float,
    tell: Tell,
    wait_s: float = 0.0,
) -> Path:
    """Measure the arms that ``step`` names, keep it, and return its file. Raises DrafthouseError.

    Other work on the machine is waited for up to ``wait_s`` seconds; where a step of the experiment waited in vain, no
    longer.

    Where the profile has a ladder, the same starts of the arms are measured under load before the step is done. A
    run that is killed meanwhile finds what comes first in `steps/NN.part.json`, and the ladder's steps in its file.

    When an engine dies, or something stands still, the step is measured again, once, on arms that were all started
    anew, and says so in its ``notes``. The second time nothing is kept of it, so that the next run measures it.
    """
    # Before it is measured: a disk that is full at the end of a step would cost all of it.
    with room_aside(step_file(resolved, step)):
        return _measure_one_step(resolved, step, request_timeout_s, tell, wait_s)


def _measure_one_step(resolved: Run, step: PlannedStep, request_timeout_s: float, tell: Tell, wait_s: float) -> Path:
    key = Path(resolved["key_file"]).read_text("utf-8").strip()
    experiment, site = resolved["experiment"], resolved["site"]
    metrics = resolved["engine"].get("metrics") or {}
    endpoints = [
        Endpoint(
            arm,
            f"http://{site['host']}:{port}",
            resolved["target"]["served_name"],
            key,
            metrics_path=metrics.get("path", "/metrics"),
            asks=metrics.get("ask", ""),
        )
        for arm, port in step["arms"].items()
    ]
    runtime = runtime_of(site["runtime"], site["home"])
    what = heading_of(step, experiment)

    def progress(event: Event) -> None:
        tell({**event, "text": f"{what}: {event.get('text', '')}"})

    path = step_file(resolved, step)
    part = path.with_suffix(".part.json")
    if part.exists():
        measured = _read_step(part)
    else:
        options = StepOptions(
            concurrency=experiment["concurrency"],
            first_round=step["round"],
            temperatures=tuple(experiment["temperatures"]),
            timeout_s=request_timeout_s,
            token_ids=ANSWERS if resolved.get("scores") else 0,
        )
        suites = without(read_suites(resolved["suites_file"], step["suites"]), step.get("without", ()))
        watch = RuntimeWatch(runtime, resolved["engine"], endpoints)
        earlier = [_read_step(one) for one in path.parent.glob("[0-9][0-9].json")]
        most_s = 0.0 if waited_in_vain(earlier) else wait_s
        waited = wait_for_quiet(lambda state: own_pids(endpoints, state), progress, most_s)
        measured = _measure_alive(endpoints, suites, options, runtime, watch, progress, site.get("gpus", ()))
        for endpoint in endpoints:
            arm = endpoint.arm
            printed = runtime.printed(arm)
            measured["arms"][arm]["engine"] = {**_observed(endpoint, printed), **told_of_start(site["home"], arm)}
            measured["arms"][arm]["memory"] = memory_told(printed)
        measured["waited"] = waited
        measured["cost_s"] = measured["duration_s"] + _started_s(site["home"], endpoints, measured)
    if "ladder" in experiment and step["round"] <= experiment["ladder"]["rounds"]:
        write_json(part, measured)
        _measure_ladder(resolved, step["round"], endpoints, runtime, request_timeout_s, progress, tell)
    if (scoring := _score(resolved, endpoints, path, measured, progress)) is not None:
        measured["scoring"] = scoring
    write_json(path, measured)
    part.unlink(missing_ok=True)
    return path


def _score(
    resolved: Run,
    endpoints: Sequence[Endpoint],
    path: Path,
    measured: StepResult,
    progress: Progress,
) -> Scoring | None:
    """Have the baseline that is served now score the answers kept so far; None where there is none, or it cannot.

    The last of a step: nothing is timed after it on these starts.
    """
    baseline = [endpoint for endpoint in endpoints if endpoint.arm == "baseline"]
    scores = resolved.get("scores")
    if not baseline or not scores:
        return None
    # All that were measured before this one: a file's number is not its turn.
    earlier = [one for one in sorted(path.parent.glob("*.json")) if one.stem.isdigit() and one != path]
    steps = [*map(_read_step, earlier), measured]
    progress({"done": 0, "total": 1, "phase": "score", "text": "the baseline scores the answers", "eta_s": None})
    return score_answers(baseline[0], steps, scores["tokens"])


def heading_of(step: PlannedStep, experiment: PlannedExperiment) -> str:
    """Return which step it is, for people: of those to begin with their number is known."""
    if step["round"] <= experiment["rounds"]:
        return f"step {step['number']} of {len(experiment['steps'])}"
    return f"step {step['number']}, in round {step['round']} of at most {experiment['most_rounds']}"


def _started_s(home: str, endpoints: Sequence[Endpoint], measured: StepResult) -> float:
    """Return how long before the measurement the first of the arms was started, in seconds; 0 where nobody knows.

    That is what a round costs beside its measuring. Of a start that nothing waited for the time to readiness counts.
    """
    starts = [read_ready(ready_file(home, endpoint.arm)) for endpoint in endpoints]
    ready_s = sum(float(start.get("ready_s", 0.0)) for start in starts)
    known = [seconds_apart(start.get("clock"), measured.get("clock")) for start in starts if start.get("seen")]
    return max([ready_s, *(seconds for seconds in known if seconds is not None)])


def _measure_alive(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    options: StepOptions,
    runtime: Runtime,
    watch: RuntimeWatch,
    progress: Progress,
    gpus: Sequence[str],
) -> StepResult:
    """Measure a step on engines that live and go on until its end, each with its lines about drafting in ``log``.

    Raises DrafthouseError when an engine dies or something stands still the second time, or an engine does not come
    back.
    """
    notes: list[str] = []
    while True:
        marks = {endpoint.arm: runtime.mark(endpoint.arm) for endpoint in endpoints}
        trouble: DrafthouseError | None = None
        measured: StepResult | None = None
        try:
            measured = run_step(endpoints, suites, options, progress, gpus=gpus)
        except DrafthouseError as error:
            trouble = error
        stood = trouble.problems[0].found if isinstance(trouble, StoodStill) else ""
        # One that was stopped has not died, and may not answer who asks.
        dead = [] if stood else [endpoint.arm for endpoint in endpoints if _died(watch, endpoint.arm, measured)]
        if not dead and not stood:
            if measured is None:
                assert trouble is not None
                raise trouble
            for arm, mark in marks.items():
                measured["arms"][arm]["log"] = _speculation_lines(runtime.printed(arm, mark))
            return measured | {"notes": notes}
        whys = {arm: asyncio.run(watch.why(arm)) for arm in dead}
        if notes:
            raise trouble if stood and trouble else DrafthouseError(_died_again(whys, runtime, options.first_round))
        what = stood or f"{', '.join(dead)} died"
        progress({"done": 0, "total": 1, "phase": "restart", "text": f"{what}: measured again", "eta_s": None})
        if stood:
            notes.append(f"round {options.first_round}: {stood}; the step was measured again")
        for endpoint in endpoints:
            # The others as well: an engine that was asked all of it remembers the answers, which is no fresh start.
            arm = endpoint.arm
            if arm not in dead:
                runtime.stop(arm)
            said = asyncio.run(watch.bring_back(arm))
            if not stood:
                how = f" ({whys[arm]})" if whys.get(arm) else ""
                what = f"{arm} died{how}" if arm in dead else f"{arm}, next to one that died"
                notes.append(f"round {options.first_round}: {what}: {said}; the step was measured again")


def _died_again(whys: Mapping[str, str], runtime: Runtime, number: int) -> Problem:
    """Return the problem of arms that died twice in a step; ``whys`` has the reason of each, '' for unknown."""
    reasons = [f"{arm} ({why})" if why else arm for arm, why in whys.items()]
    more = f"{OUT_OF_MEMORY_DO}; then " if any(map(is_out_of_memory, whys.values())) else ""
    return Problem(
        "engine-died",
        f"the engine died again after a restart: {', '.join(reasons)}",
        "an engine that survives the whole step",
        f"{more}read {runtime.log_name(next(iter(whys)))}, then run again: it continues with this step",
        f"round {number}",
    )


def _died(watch: RuntimeWatch, arm: str, measured: StepResult | None) -> bool:
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
    resolved: Run,
    number: int,
    endpoints: Sequence[Endpoint],
    runtime: Runtime,
    request_timeout_s: float,
    progress: Progress,
    tell: Tell,
) -> None:
    """Measure round ``number`` of the profile's ladder on the arms that are served now."""
    experiment = resolved["experiment"]
    suites = read_suites(resolved["suites_file"], experiment["suites"])
    plan = plan_of(experiment["ladder"], suites, experiment["once"], [number], request_timeout_s)
    file = LadderFile(ladder_file(resolved), heading(plan, resolved["profile"], resolved["key"]))

    def told(step: LadderStep) -> None:
        tell({"line": step_line(step, plan.load)}, important=True)

    with beside_ladder(endpoints, resolved["site"].get("gpus", ())) as beside:
        watch = RuntimeWatch(runtime, resolved["engine"], endpoints)
        run_ladder(endpoints, suites, plan, file, watch=watch, beside=beside, on_progress=progress, on_step=told)


def _read_step(path: Path) -> StepResult:
    return cast("StepResult", json.loads(path.read_text("utf-8")))


def read_steps(resolved: Run, last: int) -> list[StepResult]:
    """Return the kept steps of the rounds up to ``last``, in the order they were measured."""
    steps = [_read_step(step_file(resolved, step)) for step in steps_until(resolved, last)]
    # Not the planned order: an earlier version had another one.
    return sorted(steps, key=begun_s(steps))


def assemble_results(resolved: Run, last: int) -> list[Path]:
    """Write the result of every arm from the kept steps of the rounds up to ``last``, and finish the ladder.

    Returns the files.
    """
    steps = read_steps(resolved, last)
    files = []
    for arm in resolved["arms"]:
        own = [step["arms"][arm] for step in steps if arm in step["arms"]]
        engine = resolved["engine"]
        result = assemble(
            steps,
            arm,
            profile=resolved["profile"],
            key=resolved["key"],
            engine={
                "id": engine["id"],
                "name": engine["name"],
                "version": engine["version"],
                "runtime": engine["runtime"],
                **own[-1]["engine"],
            },
            log="".join(part["log"] for part in own),
            more={"memory": own[-1].get("memory") or {}},
        )
        files.append(write_json(result_file(resolved, arm), result))
    return files + _finish_ladder(resolved)


def _finish_ladder(resolved: Run) -> list[Path]:
    """Add to the ladder what all of its steps together say; return its file, or nothing without a ladder."""
    path = ladder_file(resolved)
    if "ladder" not in resolved["experiment"] or not path.exists():
        return []
    ladder = read_ladder(path)
    ladder["crossover"] = fill(ladder)
    ladder["schedule"] = offer(ladder, resolved)
    write_ladder(path, ladder)
    return [path]


def write_json(path: Path, data: Mapping[str, object]) -> Path:
    """Write JSON so that a reader finds all of it or nothing. Raises DrafthouseError."""
    return write_whole(path, json.dumps(data, indent=1) + "\n")


def _speculation_lines(text: str) -> str:
    """Return what the engine's log says of drafting."""
    return "".join(line for line in text.splitlines(keepends=True) if "SpecDecoding metrics" in line)


def told_in_log(text: str) -> EngineSeen:
    """Return what the engine's log says of how it runs; the last start is the one that was measured."""
    told: EngineSeen = {}
    for name, pattern in _TOLD_IN_LOG.items():
        if words := pattern.findall(text):
            told[name] = words[-1]
    return told


def _observed(endpoint: Endpoint, log: str) -> EngineSeen:
    """Return what the engine itself says it is: its version, its context, what it switched on its own."""
    told = told_in_log(log)
    if (version := _asked(endpoint, "/version").get("version")) is not None:
        told["version_answered"] = version
    entry: dict[str, Any] = next(iter(_asked(endpoint, "/v1/models").get("data") or []), {})
    if (length := entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")) is not None:
        told["max_model_len_answered"] = length
    return told


def _asked(endpoint: Endpoint, path: str) -> dict[str, Any]:
    """Return what the server answers at ``path``; {} where it answers nothing that can be read."""
    request = urllib.request.Request(endpoint.root + path, headers=endpoint.headers)  # noqa: S310
    try:
        with opener().open(request, timeout=10) as answer:
            data = json.load(answer)
    except (OSError, ValueError, urllib.error.URLError):
        return {}
    return data if isinstance(data, dict) else {}
