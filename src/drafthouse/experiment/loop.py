"""One experiment on the box: its steps are measured and kept one by one, then put together as results.

`<result_dir>/steps/NN.json` holds one step, `<result_dir>/<arm>.json` an arm's result, and `<result_dir>/ladder.json`
the load ladder of a profile that has one. A run that was killed goes on with the first step that is missing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..analysis.cost import memory_told
from ..analysis.noise import disturbance_of, repeated_in_vain
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
from ..bench.sweep.store import LadderFile
from ..bench.sweep.text import step_line
from ..core.errors import DrafthouseError, Problem
from ..core.kept_file import room_aside, write_whole
from ..core.step_clock import begun_s, seconds_apart
from ..profiles.experiment_plan import asking_of, fresh_planned
from ..prompts.suite_file import read_suites
from ..serving.oom_killer import DO as OUT_OF_MEMORY_DO
from ..serving.oom_killer import is_out_of_memory
from ..serving.readiness import read_ready, ready_file, told_of_start
from ..serving.runtimes import Runtime, runtime_of
from .engine_answers import engine_seen
from .kept_rounds import fresh_of, kept_files, kept_note, missing_steps, note_file, steps_until
from .more_rounds import SCHEMA, costs_by_round

if TYPE_CHECKING:
    from drafthouse.bench.output_scoring import Scoring
    from drafthouse.bench.result_types import StepResult
    from drafthouse.bench.sweep.ladder_types import LadderStep
    from drafthouse.core.progress import Event
    from drafthouse.core.progress import Tell as Progress
    from drafthouse.experiment.kept_rounds import Missing
    from drafthouse.experiment.more_rounds import Note
    from drafthouse.profiles.planned_types import PlannedExperiment, PlannedStep
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.prompts.suite_types import Suite


class Tell(Protocol):
    """Takes signs of life, and tells those that are important in any case: `progress.Progress`."""

    def __call__(self, event: Event, important: bool = False) -> None:
        """Take one event."""


def step_file(resolved: Run, step: PlannedStep) -> Path:
    """Where a step's measurement is kept."""
    return Path(resolved["result_dir"], str(step["file"]))


def result_file(resolved: Run, arm: str) -> Path:
    """Where an arm's result is kept."""
    return Path(resolved["result_dir"]) / f"{arm}.json"


@dataclass(frozen=True)
class _Arms:
    """The arms that are served now, what they run in, who looks after them, and who is told of it."""

    endpoints: Sequence[Endpoint]
    runtime: Runtime
    watch: RuntimeWatch
    gpus: Sequence[str]
    progress: Progress

    def restarted(self, dead: Sequence[str] = ()) -> dict[str, str]:
        """Start all of them anew, and say how it went; those that are ``dead`` need not be stopped.

        The others as well: an engine that was asked all of it remembers the answers, which is no fresh start.
        """
        found = {}
        for endpoint in self.endpoints:
            if endpoint.arm not in dead:
                self.runtime.stop(endpoint.arm)
            found[endpoint.arm] = asyncio.run(self.watch.bring_back(endpoint.arm))
        return found

    def log_ends(self) -> dict[str, str]:
        """Where the log of each arm ends now."""
        return {endpoint.arm: self.runtime.mark(endpoint.arm) for endpoint in self.endpoints}

    def tell_again(self, why: str) -> None:
        """Tell that a step is measured again."""
        self.progress({"done": 0, "total": 1, "phase": "restart", "text": f"{why}: measured again", "eta_s": None})


def _served(resolved: Run, step: PlannedStep, tell: Tell) -> _Arms:
    """The arms that ``step`` names."""
    site, metrics = resolved["site"], resolved["engine"].get("metrics") or {}
    key = Path(resolved["key_file"]).read_text("utf-8").strip()
    endpoints = []
    for arm, port in step["arms"].items():
        url, path = f"http://{site['host']}:{port}", metrics.get("path", "/metrics")
        name, asks = resolved["target"]["served_name"], metrics.get("ask", "")
        endpoints.append(Endpoint(arm, url, name, key, metrics_path=path, asks=asks))
    what = heading_of(step, resolved["experiment"])

    def progress(event: Event) -> None:
        tell({**event, "text": f"{what}: {event.get('text', '')}"})

    runtime = runtime_of(site["runtime"], site["home"])
    watch = RuntimeWatch(runtime, resolved["engine"], endpoints)
    return _Arms(endpoints, runtime, watch, site.get("gpus", ()), progress)


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
    experiment, path = resolved["experiment"], step_file(resolved, step)
    part = path.with_suffix(".part.json")
    arms = _served(resolved, step, tell)
    # Before it is measured: a disk that is full at the end of a step would cost all of it.
    with room_aside(path):
        measured = _read_step(part) if part.exists() else _measure(resolved, step, arms, request_timeout_s, wait_s)
        if "ladder" in experiment and step["round"] <= experiment["ladder"]["rounds"]:
            write_json(part, measured)
            _measure_ladder(resolved, step["round"], arms, request_timeout_s, tell)
        if (scoring := _score(resolved, arms, path, measured)) is not None:
            measured["scoring"] = scoring
        write_json(path, measured)
        part.unlink(missing_ok=True)
    return path


def _measure(resolved: Run, step: PlannedStep, arms: _Arms, request_timeout_s: float, wait_s: float) -> StepResult:
    """A step as it was measured, with what its engines say of themselves."""
    experiment, home = resolved["experiment"], resolved["site"]["home"]
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
    if waited_in_vain(earlier):
        wait_s = 0.0
    waited = wait_for_quiet(lambda state: own_pids(arms.endpoints, state), arms.progress, wait_s)
    measured = _measure_quietly(arms, suites, options, repeat=not repeated_in_vain(earlier))
    for endpoint in arms.endpoints:
        own, printed = measured["arms"][endpoint.arm], arms.runtime.printed(endpoint.arm)
        own["engine"] = {**engine_seen(endpoint, printed), **told_of_start(home, endpoint.arm)}
        own["memory"] = memory_told(printed)
    measured["waited"] = waited
    measured["cost_s"] = measured["duration_s"] + _started_s(home, arms.endpoints, measured)
    return measured


def _score(resolved: Run, arms: _Arms, path: Path, measured: StepResult) -> Scoring | None:
    """Have the baseline that is served now score the answers kept so far; None where there is none, or it cannot.

    The last of a step: nothing is timed after it on these starts.
    """
    baseline = [endpoint for endpoint in arms.endpoints if endpoint.arm == "baseline"]
    scores = resolved.get("scores")
    if not baseline or not scores:
        return None
    # All that were measured before this one: a file's number is not its turn.
    earlier = [one for one in sorted(path.parent.glob("*.json")) if one.stem.isdigit() and one != path]
    steps = [*map(_read_step, earlier), measured]
    arms.progress({"done": 0, "total": 1, "phase": "score", "text": "the baseline scores the answers", "eta_s": None})
    return score_answers(baseline[0], steps, scores["tokens"])


def heading_of(step: PlannedStep, experiment: PlannedExperiment) -> str:
    """Which step it is, for people: of those to begin with their number is known."""
    if step["round"] <= experiment["rounds"]:
        return f"step {step['number']} of {len(experiment['steps'])}"
    return f"step {step['number']}, in round {step['round']} of at most {experiment['most_rounds']}"


def _started_s(home: str, endpoints: Sequence[Endpoint], measured: StepResult) -> float:
    """How long before the measurement the first of the arms was started, in seconds; 0 where nobody knows.

    That is what a round costs beside its measuring. Of a start that nothing waited for the time to readiness counts.
    """
    ready_s, since_start_s = 0.0, 0.0
    for endpoint in endpoints:
        start = read_ready(ready_file(home, endpoint.arm))
        ready_s += float(start.get("ready_s", 0.0))
        if start.get("seen"):
            since_start_s = max(since_start_s, seconds_apart(start.get("clock"), measured.get("clock")) or 0.0)
    return max(ready_s, since_start_s)


def _measure_quietly(arms: _Arms, suites: Sequence[Suite], options: StepOptions, *, repeat: bool) -> StepResult:
    """Measure a step, and where another job or a throttled GPU disturbed it once more on fresh starts (``repeat``).

    What still disturbs it then stands in ``disturbed``. Raises what `_measure_alive` raises.
    """
    measured = _measure_alive(arms, suites, options)
    why = disturbance_of(measured)
    if not why or not repeat:
        return measured
    arms.tell_again(why)
    arms.restarted()
    notes = [*measured.get("notes", []), f"round {options.first_round}: {why}; the step was measured again"]
    measured = _measure_alive(arms, suites, options)
    measured["notes"] = [*notes, *measured.get("notes", [])]
    if still := disturbance_of(measured):
        measured["disturbed"] = still
        measured["notes"].append(f"round {options.first_round}: {still} the second time, too")
    return measured


def _measure_alive(arms: _Arms, suites: Sequence[Suite], options: StepOptions) -> StepResult:
    """Measure a step on engines that live and go on until its end, each with its lines about drafting in ``log``.

    Raises DrafthouseError when an engine dies or something stands still the second time, or an engine does not come
    back.
    """
    notes: list[str] = []
    while True:
        marks = arms.log_ends()
        trouble: DrafthouseError | None = None
        measured: StepResult | None = None
        try:
            measured = run_step(arms.endpoints, suites, options, arms.progress, gpus=arms.gpus)
        except DrafthouseError as error:
            trouble = error
        stood = trouble.problems[0].found if isinstance(trouble, StoodStill) else ""
        # An arm that was stopped has not died, and may not answer who asks.
        dead = [] if stood else [arm for arm in marks if _died(arms.watch, arm, measured)]
        if not dead and not stood:
            if measured is None:
                assert trouble is not None
                raise trouble
            for arm, mark in marks.items():
                measured["arms"][arm]["log"] = _drafting_lines(arms.runtime.printed(arm, mark))
            return measured | {"notes": notes}
        whys = {arm: asyncio.run(arms.watch.why(arm)) for arm in dead}
        if notes and stood and trouble:
            raise trouble
        if notes:
            raise DrafthouseError(_died_again(whys, arms.runtime, options.first_round))
        arms.tell_again(stood or f"{', '.join(dead)} died")
        for event in _events(stood, whys, arms.restarted(dead)):
            notes.append(f"round {options.first_round}: {event}; the step was measured again")


def _events(stood: str, whys: Mapping[str, str], restarts: Mapping[str, str]) -> list[str]:
    """Why a step is measured again: what stood still, or what became of each arm."""
    if stood:
        return [stood]
    return [_ended(arm, whys, restart) for arm, restart in restarts.items()]


def _drafting_lines(log: str) -> str:
    """The lines of an engine's log about drafting."""
    return "".join(line for line in log.splitlines(keepends=True) if "SpecDecoding metrics" in line)


def _ended(arm: str, whys: Mapping[str, str], said: str) -> str:
    """What became of an arm: of one that died why (``whys``), and of each how it came back."""
    if arm not in whys:
        return f"{arm}, next to one that died: {said}"
    return f"{_with_reason(f'{arm} died', whys[arm])}: {said}"


def _with_reason(text: str, why: str) -> str:
    """A text with a reason in brackets, where there is one."""
    if not why:
        return text
    return f"{text} ({why})"


def _died_again(whys: Mapping[str, str], runtime: Runtime, number: int) -> Problem:
    """The problem of arms that died twice in a step; ``whys`` has the reason of each, '' for unknown."""
    reasons = [_with_reason(arm, why) for arm, why in whys.items()]
    more = ""
    if any(map(is_out_of_memory, whys.values())):
        more = f"{OUT_OF_MEMORY_DO}; then "
    return Problem(
        "engine-died",
        f"the engine died again after a restart: {', '.join(reasons)}",
        "an engine that survives the whole step",
        f"{more}read {runtime.log_name(next(iter(whys)))}, then run again: it continues with this step",
        f"round {number}",
    )


def _died(watch: RuntimeWatch, arm: str, measured: StepResult | None) -> bool:
    """Whether an arm died while it was measured; where answers are missing it is asked for a moment."""
    attempts = ASK_AGAIN
    if measured and measured["arms"][arm]["requests"]:
        requests = measured["arms"][arm]["requests"]
        if not any(one["http_status"] is None or one["status"] == CUT_OFF for one in requests):
            attempts = 1
    for attempt in range(attempts):
        if attempt:
            time.sleep(ASK_AGAIN_S)
        if asyncio.run(watch.died(arm)):
            return True
    return False


def _measure_ladder(resolved: Run, number: int, arms: _Arms, request_timeout_s: float, tell: Tell) -> None:
    """Measure round ``number`` of the profile's ladder on the arms that are served now."""
    experiment, path = resolved["experiment"], Path(resolved["result_dir"], "ladder.json")
    suites = read_suites(resolved["suites_file"], experiment["suites"])
    plan = plan_of(experiment["ladder"], suites, experiment["once"], [number], request_timeout_s)
    file = LadderFile(path, heading(plan, resolved["profile"], resolved["key"]))

    def told(step: LadderStep) -> None:
        tell({"line": step_line(step, plan.load)}, important=True)

    with beside_ladder(arms.endpoints, arms.gpus) as beside:
        run_ladder(
            arms.endpoints, suites, plan, file,
            watch=arms.watch, beside=beside, on_progress=arms.progress, on_step=told,
        )  # fmt: skip


def _read_step(path: Path) -> StepResult:
    return cast("StepResult", json.loads(path.read_text("utf-8")))


def read_steps(resolved: Run, last: int) -> list[StepResult]:
    """The kept steps of the rounds up to ``last``, in the order they were measured."""
    steps = [_read_step(step_file(resolved, step)) for step in steps_until(resolved, last)]
    # Not the planned order: an earlier version had another one.
    return sorted(steps, key=begun_s(steps))


def assemble_results(resolved: Run, last: int) -> list[Path]:
    """Write the result of every arm from the kept steps of the rounds up to ``last``; return the files."""
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
    return files


def put_together(resolved: Run, last: int) -> dict[int, float]:
    """Write the arms' results over the rounds up to ``last``; return what each of these took, in seconds.

    Until the decision over them is kept they count as not judged: a run that is killed meanwhile judges again.
    """
    note: Note = {"schema": SCHEMA, "done": last, "next": None, "judged": False}
    before = kept_note(resolved)
    if before and "fresh" in before:
        note["fresh"] = before["fresh"]
    write_json(note_file(resolved), note)
    assemble_results(resolved, last)
    return costs_by_round(read_steps(resolved, last))


def keep_decision(resolved: Run, note: Note) -> Missing:
    """Keep what was decided, with the fresh prompts of every round; return what is to be measured now."""
    before = kept_note(resolved)
    fresh = fresh_planned(resolved["experiment"], note["done"], fresh_of(before))
    more = note.get("asks")
    if more is not None:
        fresh = [*fresh, more]
    note = {**note, "fresh": fresh}
    write_json(note_file(resolved), note)
    if note["next"] is None:
        return {"last": note["done"], "steps": []}
    return {"last": note["next"], "steps": missing_steps(resolved, note["next"], kept_files(resolved), note)}


def write_json(path: Path, data: Mapping[str, object]) -> Path:
    """Write JSON so that a reader finds all of it or nothing. Raises DrafthouseError."""
    return write_whole(path, json.dumps(data, indent=1) + "\n")
