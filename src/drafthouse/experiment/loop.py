"""Run an experiment on the measured machine: measure and store its steps one by one, then assemble the results.

A step is one start of servers and the requests to them; an arm is one of the servers, baseline or speculative. Files:
`<result_dir>/steps/NN.json` is a step, `<result_dir>/<arm>.json` an arm's result, and `<result_dir>/ladder.json` the
load sweep (ladder) of a profile that has one. A killed run continues with the first missing step.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..analysis.cost import memory_in_log
from ..analysis.noise import disturbance_of, repeated_in_vain
from ..bench.client import Endpoint
from ..bench.foreign_load import wait_for_quiet, waited_in_vain
from ..bench.groups import StepOptions
from ..bench.instruments import ladder_readers
from ..bench.outcome import CUT_OFF
from ..bench.output_scoring import ANSWERS, score_answers
from ..bench.own_processes import own_pids
from ..bench.results import assemble
from ..bench.standstill import StoodStill
from ..bench.step import run_step
from ..bench.sweep.plan import heading, plan_of
from ..bench.sweep.recovery import RuntimeWatch
from ..bench.sweep.run import ASK_AGAIN, ASK_AGAIN_S, run_ladder
from ..bench.sweep.store import LadderFile
from ..bench.sweep.text import step_line
from ..core.errors import DrafthouseError, Problem
from ..core.kept_file import reserved_space, write_whole
from ..core.step_clock import begun_s, seconds_apart
from ..profiles.experiment_plan import asking_of, fresh_planned
from ..prompts.suite_file import read_suites
from ..serving.oom_killer import DO as OUT_OF_MEMORY_DO
from ..serving.oom_killer import is_out_of_memory
from ..serving.readiness import read_ready, ready_file, start_facts
from ..serving.runtimes import Runtime, runtime_of
from .engine_answers import engine_seen
from .kept_rounds import fresh_of, kept_files, kept_note, missing_steps, note_file, steps_until
from .more_rounds import SCHEMA, costs_by_round

if TYPE_CHECKING:
    from drafthouse.bench.output_scoring import Scoring
    from drafthouse.bench.result_types import StepResult
    from drafthouse.bench.sweep.ladder_types import LadderStep
    from drafthouse.core.progress import Event
    from drafthouse.core.progress import Tell as TellEvent
    from drafthouse.experiment.kept_rounds import Missing
    from drafthouse.experiment.more_rounds import RoundsNote
    from drafthouse.profiles.planned_types import PlannedExperiment, PlannedStep
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.prompts.suite_types import Suite


class Tell(Protocol):
    """The interface of `progress.Progress`: shows progress events, and may skip those that are not ``important``."""

    def __call__(self, event: Event, important: bool = False) -> None:
        """Show one event."""


def step_file(resolved: Run, step: PlannedStep) -> Path:
    """The path of a step's file."""
    return Path(resolved["result_dir"], str(step["file"]))


def result_file(resolved: Run, arm: str) -> Path:
    """The path of an arm's result."""
    return Path(resolved["result_dir"]) / f"{arm}.json"


@dataclass(frozen=True)
class _Arms:
    """The running servers of a step, and what is needed to watch, restart and measure them."""

    endpoints: Sequence[Endpoint]
    runtime: Runtime  # containers or processes
    watch: RuntimeWatch  # tells whether an arm died, and restarts it
    gpus: Sequence[str]  # the words of `drafthouse_gpus`, which select the GPUs to read
    progress: TellEvent  # shows progress events, with the step's name

    def restart(self, dead: Sequence[str] = ()) -> dict[str, str]:
        """Restart all arms; return a sentence about each, by arm. Those in ``dead`` are not stopped first.

        Arms that did not die are restarted too, because their caches hold the prompts of the step.
        """
        restarts = {}
        for endpoint in self.endpoints:
            if endpoint.arm not in dead:
                self.runtime.stop(endpoint.arm)
            restarts[endpoint.arm] = asyncio.run(self.watch.bring_back(endpoint.arm))
        return restarts

    def log_ends(self) -> dict[str, str]:
        """A mark of the current end of each arm's log, by arm."""
        return {endpoint.arm: self.runtime.mark(endpoint.arm) for endpoint in self.endpoints}

    def report_repeat(self, why: str) -> None:
        """Show that the step is measured again, and why."""
        self.progress({"done": 0, "total": 1, "phase": "restart", "text": f"{why}: measured again", "eta_s": None})


def _running_arms(resolved: Run, step: PlannedStep, tell: Tell) -> _Arms:
    """The running servers of the arms that ``step`` names."""
    site = resolved["site"]
    metrics = resolved["engine"].get("metrics") or {}
    key = Path(resolved["key_file"]).read_text("utf-8").strip()
    endpoints = []
    for arm, port in step["arms"].items():
        endpoints.append(
            Endpoint(
                arm,
                f"http://{site['host']}:{port}",
                resolved["target"]["served_name"],
                key,
                metrics_path=metrics.get("path", "/metrics"),
                draft_fields=metrics.get("ask", ""),
            )
        )
    step_name = heading_of(step, resolved["experiment"])

    def progress(event: Event) -> None:
        tell({**event, "text": f"{step_name}: {event.get('text', '')}"})

    runtime = runtime_of(site["runtime"], site["home"])
    watch = RuntimeWatch(runtime, resolved["engine"], endpoints)
    return _Arms(endpoints=endpoints, runtime=runtime, watch=watch, gpus=site.get("gpus", ()), progress=progress)


def measure_one_step(
    resolved: Run,
    step: PlannedStep,
    request_timeout_s: float,
    tell: Tell,
    wait_s: float = 0.0,
) -> Path:
    """Measure the arms that ``step`` names, store the step, and return its file. Raises DrafthouseError.

    In this order:

    - Wait up to ``wait_s`` seconds for an idle CPU, unless an earlier step waited in vain, and measure the step. If an
      engine dies or something stands still, all arms are restarted and the step is repeated once, which its ``notes``
      say. If that fails too, nothing is stored, and the next run measures the step.
    - If the profile has a ladder with this round, measure the same server starts under load. Until that is complete the
      step is in `steps/NN.part.json`, from which a killed run continues; the ladder's steps are in `ladder.json`.
    - Let the baseline score the answers, if it can.
    """
    experiment = resolved["experiment"]
    path = step_file(resolved, step)
    part = path.with_suffix(".part.json")
    arms = _running_arms(resolved, step, tell)
    # Disk space is reserved first, because a full disk at the end would lose the whole step.
    with reserved_space(path):
        if part.exists():
            measured = _read_step(part)
        else:
            measured = _measure(resolved, step, arms, request_timeout_s=request_timeout_s, wait_s=wait_s)
        if "ladder" in experiment and step["round"] <= experiment["ladder"]["rounds"]:
            write_json(part, measured)
            _measure_ladder(resolved, step["round"], arms, request_timeout_s, tell)
        if (scoring := _score(resolved, arms, path, measured)) is not None:
            measured["scoring"] = scoring
        write_json(path, measured)
        part.unlink(missing_ok=True)
    return path


def _measure(resolved: Run, step: PlannedStep, arms: _Arms, *, request_timeout_s: float, wait_s: float) -> StepResult:
    """Measure the step after waiting for a quiet machine; add the engines' descriptions and the step's seconds."""
    experiment = resolved["experiment"]
    home = resolved["site"]["home"]
    options = StepOptions(
        concurrency=experiment["concurrency"],
        first_round=step["round"],
        temperatures=tuple(experiment["temperatures"]),
        timeout_s=request_timeout_s,
        token_ids=ANSWERS if resolved.get("scores") else 0,
        asking=asking_of(experiment, step),
    )
    suites = read_suites(resolved["suites_file"], step["suites"])
    earlier = list(map(_read_step, step_file(resolved, step).parent.glob("[0-9][0-9].json")))
    # A machine that never became quiet will not do so now.
    if waited_in_vain(earlier):
        wait_s = 0.0
    waited = wait_for_quiet(lambda state: own_pids(arms.endpoints, state), arms.progress, wait_s)
    measured = _measure_quietly(arms, suites, options, repeat=not repeated_in_vain(earlier))
    for endpoint in arms.endpoints:
        arm_result = measured["arms"][endpoint.arm]
        printed = arms.runtime.printed(endpoint.arm)
        arm_result["engine"] = {**engine_seen(endpoint, printed), **start_facts(home, endpoint.arm)}
        arm_result["memory"] = memory_in_log(printed)
    measured["waited"] = waited
    measured["cost_s"] = measured["duration_s"] + _start_cost_s(home, arms.endpoints, measured)
    return measured


def _score(resolved: Run, arms: _Arms, path: Path, measured: StepResult) -> Scoring | None:
    """Let the running baseline score the stored answers; None if no baseline runs or the engine cannot score.

    This is the last part of a step, so that no timed request is delayed. ``path`` is the file of the step.
    """
    baseline = [endpoint for endpoint in arms.endpoints if endpoint.arm == "baseline"]
    scores = resolved.get("scores")
    if not baseline or not scores:
        return None
    # All other stored steps count as earlier, because the files' numbers need not be the order of measurement.
    earlier = [file for file in sorted(path.parent.glob("*.json")) if file.stem.isdigit() and file != path]
    steps = [*map(_read_step, earlier), measured]
    arms.progress({"done": 0, "total": 1, "phase": "score", "text": "the baseline scores the answers", "eta_s": None})
    return score_answers(baseline[0], steps, scores["tokens"])


def heading_of(step: PlannedStep, experiment: PlannedExperiment) -> str:
    """The step's number for people; the total is known only for the planned first rounds."""
    if step["round"] <= experiment["rounds"]:
        return f"step {step['number']} of {len(experiment['steps'])}"
    return f"step {step['number']}, in round {step['round']} of at most {experiment['most_rounds']}"


def _start_cost_s(home: str, endpoints: Sequence[Endpoint], measured: StepResult) -> float:
    """The seconds from the first server start to the measurement, which are a part of a round's cost; 0 if unknown.

    They are at least the sum of the arms' times to readiness, because nothing else is known of a start without a clock.
    """
    ready_s = 0.0  # sum over the arms
    since_start_s = 0.0  # from the earliest start
    for endpoint in endpoints:
        start = read_ready(ready_file(home, endpoint.arm))
        ready_s += float(start.get("ready_s", 0.0))
        if start.get("seen"):
            since_start_s = max(since_start_s, seconds_apart(start.get("clock"), measured.get("clock")) or 0.0)
    return max(ready_s, since_start_s)


def _measure_quietly(arms: _Arms, suites: Sequence[Suite], options: StepOptions, *, repeat: bool) -> StepResult:
    """Measure a step, and with ``repeat`` once more if another process or a throttled GPU disturbed it.

    All arms are restarted before the repeat, and the ``notes`` of the step say so. A disturbance of the repeat is
    recorded in ``disturbed`` as well. Raises what `_measure_alive` raises.
    """
    measured = _measure_alive(arms, suites, options)
    why = disturbance_of(measured)
    if not why or not repeat:
        return measured
    arms.report_repeat(why)
    arms.restart()
    notes = [*measured.get("notes", []), f"round {options.first_round}: {why}; the step was measured again"]
    measured = _measure_alive(arms, suites, options)
    measured["notes"] = [*notes, *measured.get("notes", [])]
    if still := disturbance_of(measured):
        measured["disturbed"] = still
        measured["notes"].append(f"round {options.first_round}: {still} the second time, too")
    return measured


def _measure_alive(arms: _Arms, suites: Sequence[Suite], options: StepOptions) -> StepResult:
    """Measure a step whose engines run until its end; each arm's ``log`` gets the log lines about drafting.

    After the death of an engine or a standstill all arms are restarted and the step is repeated once, which its
    ``notes`` say. Raises DrafthouseError if that fails too, if an engine does not restart, or if the measurement fails
    otherwise.
    """
    notes: list[str] = []
    while True:
        marks = arms.log_ends()
        step_error: DrafthouseError | None = None
        measured: StepResult | None = None
        try:
            measured = run_step(arms.endpoints, suites, options, arms.progress, gpus=arms.gpus)
        except DrafthouseError as error:
            step_error = error
        standstill = ""  # what stood still, such as an engine; "" if nothing did
        if isinstance(step_error, StoodStill):
            standstill = step_error.problems[0].found
        # After a standstill no arm is checked for death: a stopped engine is alive, but may not answer.
        dead = [] if standstill else [arm for arm in marks if _died(arms.watch, arm, measured)]
        if not dead and not standstill:
            if measured is None:
                assert step_error is not None
                raise step_error
            for arm, mark in marks.items():
                measured["arms"][arm]["log"] = _drafting_lines(arms.runtime.printed(arm, mark))
            return measured | {"notes": notes}
        whys = {arm: asyncio.run(arms.watch.why(arm)) for arm in dead}
        # There are notes only if this was the repeat.
        if notes and standstill and step_error:
            raise step_error
        if notes:
            raise DrafthouseError(_died_again(whys, arms.runtime, options.first_round))
        arms.report_repeat(standstill or f"{', '.join(dead)} died")
        for event in _events(standstill, whys, arms.restart(dead)):
            notes.append(f"round {options.first_round}: {event}; the step was measured again")


def _events(standstill: str, whys: Mapping[str, str], restarts: Mapping[str, str]) -> list[str]:
    """The reasons of a repeat: the standstill, or a sentence about each restarted arm."""
    if standstill:
        return [standstill]
    return [_ended(arm, whys, restart) for arm, restart in restarts.items()]


def _drafting_lines(log: str) -> str:
    """The lines of vLLM's log about draft statistics."""
    return "".join(line for line in log.splitlines(keepends=True) if "SpecDecoding metrics" in line)


def _ended(arm: str, whys: Mapping[str, str], restart: str) -> str:
    """A sentence about a restarted arm: its death with the reason from ``whys`` (by dead arm), and its ``restart``."""
    if arm not in whys:
        return f"{arm}, next to one that died: {restart}"
    return f"{_with_reason(f'{arm} died', whys[arm])}: {restart}"


def _with_reason(text: str, why: str) -> str:
    """``text`` with the reason in brackets; unchanged if the reason is ''."""
    if not why:
        return text
    return f"{text} ({why})"


def _died_again(whys: Mapping[str, str], runtime: Runtime, round_number: int) -> Problem:
    """The problem of arms that died twice in a step; ``whys`` has the reason by arm, '' for unknown."""
    reasons = [_with_reason(arm, why) for arm, why in whys.items()]
    out_of_memory = ""
    if any(map(is_out_of_memory, whys.values())):
        out_of_memory = f"{OUT_OF_MEMORY_DO}; then "
    return Problem(
        "engine-died",
        f"the engine died again after a restart: {', '.join(reasons)}",
        "an engine that survives the whole step",
        f"{out_of_memory}read {runtime.log_name(next(iter(whys)))}, then run again: it continues with this step",
        f"round {round_number}",
    )


def _died(watch: RuntimeWatch, arm: str, measured: StepResult | None) -> bool:
    """True if an arm died during the measurement.

    If every request was answered whole, one check is enough. Else a death may show late, so there are `ASK_AGAIN`
    checks, `ASK_AGAIN_S` seconds apart.
    """
    attempts = ASK_AGAIN
    if measured and measured["arms"][arm]["requests"]:
        requests = measured["arms"][arm]["requests"]
        if not any(request["http_status"] is None or request["status"] == CUT_OFF for request in requests):
            attempts = 1
    for attempt in range(attempts):
        if attempt:
            time.sleep(ASK_AGAIN_S)
        if asyncio.run(watch.died(arm)):
            return True
    return False


def _measure_ladder(resolved: Run, round_number: int, arms: _Arms, request_timeout_s: float, tell: Tell) -> None:
    """Measure round ``round_number`` of the profile's ladder on the running arms."""
    experiment = resolved["experiment"]
    path = Path(resolved["result_dir"], "ladder.json")
    suites = read_suites(resolved["suites_file"], experiment["suites"])
    plan = plan_of(
        experiment["ladder"], suites, once=experiment["once"], rounds=[round_number], timeout_s=request_timeout_s
    )
    file = LadderFile(path, heading(plan, resolved["profile"], resolved["key"]))

    def show_step(step: LadderStep) -> None:
        tell({"line": step_line(step, plan.load)}, important=True)

    with ladder_readers(arms.endpoints, arms.gpus) as readers:
        run_ladder(
            arms.endpoints, suites, plan, file,
            watch=arms.watch, readers=readers, on_progress=arms.progress, on_step=show_step,
        )  # fmt: skip


def _read_step(path: Path) -> StepResult:
    """The step stored in a file."""
    return cast("StepResult", json.loads(path.read_text("utf-8")))


def read_steps(resolved: Run, last: int) -> list[StepResult]:
    """The stored steps of the rounds up to ``last``, in the order of measurement."""
    steps = [_read_step(step_file(resolved, step)) for step in steps_until(resolved, last)]
    # The planned order may differ: earlier versions had another one.
    return sorted(steps, key=begun_s(steps))


def assemble_results(resolved: Run, last: int) -> list[Path]:
    """Write the result of every arm from the stored steps of the rounds up to ``last``; return the files."""
    steps = read_steps(resolved, last)
    files = []
    for arm in resolved["arms"]:
        arm_steps = [step["arms"][arm] for step in steps if arm in step["arms"]]
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
                **arm_steps[-1]["engine"],
            },
            log="".join(arm_step["log"] for arm_step in arm_steps),
            extra_keys={"memory": arm_steps[-1].get("memory") or {}},  # of the last start, like the engine's facts
        )
        files.append(write_json(result_file(resolved, arm), result))
    return files


def put_together(resolved: Run, last: int) -> dict[int, float]:
    """Write the arms' results over the rounds up to ``last``; return the seconds that each round took, by round.

    The rounds count as not judged until `keep_decision`, so that a run that is killed before it judges them again.
    """
    note: RoundsNote = {"schema": SCHEMA, "done": last, "next": None, "judged": False}
    old_note = kept_note(resolved)
    if old_note and "fresh" in old_note:
        note["fresh"] = old_note["fresh"]
    write_json(note_file(resolved), note)
    assemble_results(resolved, last)
    return costs_by_round(read_steps(resolved, last))


def keep_decision(resolved: Run, note: RoundsNote) -> Missing:
    """Store the decision ``note`` with the number of fresh prompts of every round; return the steps to measure next.

    The steps are empty if the decision is against a further round.
    """
    old_note = kept_note(resolved)
    fresh = fresh_planned(resolved["experiment"], note["done"], fresh_of(old_note))
    next_fresh = note.get("asks")
    if next_fresh is not None:
        fresh = [*fresh, next_fresh]
    note = {**note, "fresh": fresh}
    write_json(note_file(resolved), note)
    if note["next"] is None:
        return {"last": note["done"], "steps": []}
    return {"last": note["next"], "steps": missing_steps(resolved, note["next"], kept_files(resolved), note)}


def write_json(path: Path, data: Mapping[str, object]) -> Path:
    """Replace a JSON file atomically, and return its path. Raises DrafthouseError."""
    return write_whole(path, json.dumps(data, indent=1) + "\n")
