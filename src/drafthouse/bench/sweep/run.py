"""Measure a load sweep (ladder) step by step. Each step is stored at once, also if an engine dies or a user stops it.

A step (a `Rung` of the plan) is one arm (server) at one level with one prompt kind in one round. An arm is warmed up at
its first step of a level. Counters, the machine's state and further readings are taken before and after each step.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import aiohttp

from ...bench.client import ChatRequest, Endpoint, open_session
from ...bench.foreign_traffic import GIVEN_UP, Clocks, clock_jump, foreign_work, read_clocks, settled
from ...bench.machine_state import MachineState, between, read_machine
from ...bench.own_processes import local_engine_pids, own_pids
from ...bench.results import acceptance_of, percentile
from ...bench.spec_metrics import read_counters
from ...bench.standstill import wait_for_standstill
from ...bench.step import warm_up
from ...core.errors import DrafthouseError
from ...prompts.load_levels import CLOSED
from .level import DIED, FAILED_IN_A_ROW, STOPPED, LoadOptions, LoadRun
from .plan import LadderPlan, Rung, endless, requests_by_kind, rungs
from .stats import step_numbers
from .step_notes import drafting, is_give_up_note, merge_readings, number_notes, request_notes
from .store import BROKEN, INCOMPLETE, OK, POLLUTED, LadderFile

if TYPE_CHECKING:
    from drafthouse.bench.result_types import CounterPair, Request, Snapshot
    from drafthouse.bench.sweep.ladder_types import Ladder, LadderStep, StepReadings
    from drafthouse.core.progress import Tell
    from drafthouse.prompts.suite_types import Suite

#: Interval of progress events, in seconds.
HEARTBEAT_S = 1.0
#: The number of checks whether an engine died: a runtime may report a dead one as running for a moment.
ASK_AGAIN = 8
#: The interval of these checks, in seconds.
ASK_AGAIN_S = 0.25
#: Warm-up requests before an open loop, whose level (requests per second) gives no number of concurrent requests.
_WARMUPS_OPEN = 4


class Watch(Protocol):
    """Watches and restarts the servers of a ladder (`recovery.py`)."""

    async def died(self, arm: str) -> bool:
        """True if the arm's server is gone, or has been restarted."""

    async def why(self, arm: str) -> str:
        """The reason why the arm's server ended; '' if unknown."""

    async def bring_back(self, arm: str) -> str:
        """Wait until the arm's server answers again; return a sentence about what was done. Raises DrafthouseError."""


class StepReader(Protocol):
    """Takes readings during one step, for example of the GPUs; each step has a new reader."""

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Take the reading before the first request."""

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Take the reading right after the last answer; later work does not belong to the step."""

    def report(self, requests: Sequence[Request], unfinished: int) -> StepReadings:
        """The readings, to be merged into the step."""


@dataclass(frozen=True)
class Context:
    """The surroundings of a step at one moment: the server's counters, the machine's state and its clocks."""

    counters: Snapshot
    machine: MachineState
    clocks: Clocks


def run_ladder(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    plan: LadderPlan,
    file: LadderFile,
    *,
    watch: Watch,
    readers: Sequence[Callable[[], StepReader]] = (),
    on_progress: Tell = lambda event: None,
    on_step: Callable[[LadderStep], None] = lambda step: None,
) -> Ladder:
    """Measure the planned steps that ``file`` lacks, and return the whole ladder.

    ``on_progress`` gets {done, total, phase, text, eta_s} every second, ``on_step`` each step when it is stored.
    Raises DrafthouseError if the plan is wrong. On an interrupt the current step is stored with status "incomplete".
    """
    requests = requests_by_kind(plan, suites)
    ladder = _Ladder(endpoints, requests, plan, file, watch, readers, on_progress, on_step)
    asyncio.run(ladder.measure())
    return file.data


class _Ladder:
    """The state of a ladder while it is being measured; `measure` runs it."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        requests: Mapping[str, Sequence[ChatRequest]],
        plan: LadderPlan,
        file: LadderFile,
        watch: Watch,
        readers: Sequence[Callable[[], StepReader]],
        on_progress: Tell,
        on_step: Callable[[LadderStep], None],
    ) -> None:
        self.endpoints = {endpoint.arm: endpoint for endpoint in endpoints}
        self.requests = requests  # by prompt kind
        self.plan = plan
        self.file = file
        self.watch = watch
        self.readers = readers
        self.on_progress = on_progress
        self.on_step = on_step
        self.warmed: set[tuple[str, float]] = set()  # arm and level
        self.restarted: set[str] = set()  # arms whose server was restarted in this run
        self.given_up: set[str] = set()  # arms that are not measured any more
        self.planned = [rung for rung in rungs(plan, list(self.endpoints)) if not file.has(rung)]
        self.done = 0  # steps
        self.step_times_s: list[float] = []  # of the measured steps, with their warm-up
        self.text = ""
        self.began_s = time.perf_counter()  # of the current step, as the next one
        self.ended_well = 0  # complete answers

    async def measure(self) -> None:
        """Measure the planned steps in their order, without those of an arm that was given up."""
        if not self.planned:
            return
        ca_pem = next(iter(self.endpoints.values())).ca_pem
        async with open_session(self.plan.timeout_s, ca_pem) as session:
            beat = asyncio.create_task(self.heartbeat())
            try:
                for rung in self.planned:
                    if rung.arm not in self.given_up:
                        await self.measure_rung(session, rung)
                    self.done += 1
            finally:
                beat.cancel()

    # --- one step ---------------------------------------------------------------------------------

    async def measure_rung(self, session: aiohttp.ClientSession, rung: Rung) -> None:
        """Measure one step and store it; restart the arm if its engine died."""
        self.began_s = time.perf_counter()
        self.ended_well = 0
        self.show(f"{rung.name}: warm-up")
        endpoint = self.endpoints[rung.arm]
        run = LoadRun(endpoint, endless(self.requests[rung.kind], self.plan, rung), self.load_of(rung), self.note_ended)
        warm_up_error = await self.warm(session, endpoint, rung.level)
        before = await self.read_context(session, endpoint)
        readers = [make_reader() for make_reader in self.readers]
        for reader in readers:
            await reader.begin(session, endpoint)
        started_unix_s = time.time()
        self.text = rung.name
        watching = asyncio.create_task(wait_for_standstill(lambda: local_engine_pids([endpoint])))
        try:
            if warm_up_error is None:
                await run.run(session)
            else:
                run.ended_by = FAILED_IN_A_ROW
            for reader in readers:
                await reader.end(session, endpoint)
            step, requests = await asyncio.to_thread(self.step_of, rung, run, started_unix_s)
            if warm_up_error is not None:
                step["notes"].append(f"no warm-up request was answered: {warm_up_error}")
            for reader in readers:
                merge_readings(step, reader.report(requests, run.unfinished))
            if watching.done():
                merge_readings(step, {"notes": [f"{watching.result()} during this step"], "status": POLLUTED})
            step = self.in_context(step, requests, before, await self.read_context(session, endpoint))
            await self.note_death(step, rung, run)
        except asyncio.CancelledError:
            step, requests = self.step_of(rung, run, started_unix_s)
            self.store({**step, "status": INCOMPLETE, "ended_by": STOPPED}, requests)
            raise
        finally:
            watching.cancel()
        self.store(step, requests)
        if step["ended_by"] == DIED:
            await self.bring_back(step, rung)
        self.step_times_s.append(time.perf_counter() - self.began_s)

    def load_of(self, rung: Rung) -> LoadOptions:
        """The load level of a step."""
        return LoadOptions(
            load=self.plan.load,
            level=rung.level,
            prompts=len({request.prompt_id for request in self.requests[rung.kind]}),
            seconds=self.plan.seconds,
            narrow=self.plan.narrow,
            drain_s=self.plan.drain_s,
            # The seed does not depend on the arm, so both arms get the same arrival times.
            seed=self.plan.seed + 1000 * rung.round + self.plan.levels.index(rung.level),
        )

    def streams(self, level: float) -> int:
        """The number of concurrent requests of a level; 1 for an open loop, where it is unknown."""
        return int(level) if self.plan.load == CLOSED else 1

    async def warm(self, session: aiohttp.ClientSession, endpoint: Endpoint, level: float) -> str | None:
        """Warm up the engine unless it was at this level; return the error if no request succeeded, otherwise None."""
        if (endpoint.arm, level) in self.warmed:
            return None
        requests = int(level) if self.plan.load == CLOSED else _WARMUPS_OPEN
        warmed = await warm_up(
            session, endpoint, requests, concurrency=requests, seed=self.plan.seed, ignore_eos=self.plan.ignore_eos
        )
        if warmed["failed"] == warmed["sent"]:
            return str(warmed["error"])
        self.warmed.add((endpoint.arm, level))
        return None

    def step_of(self, rung: Rung, run: LoadRun, started_unix_s: float) -> tuple[LadderStep, list[Request]]:
        """The step computed from its requests, and the requests; readings are merged in later."""
        requests = run.requests()
        late_ms = percentile([1000 * late_s for late_s in run.late_s()], 99)
        step: LadderStep = {
            "level": rung.level,
            "arm": rung.arm,
            "round": rung.round,
            "kind": rung.kind,
            "status": BROKEN if run.ended_by == FAILED_IN_A_ROW else OK,
            "ended_by": run.ended_by,
            "started_unix_s": started_unix_s,
            "restarted": False,
            **step_numbers(requests, run.window, self.plan.limits, self.streams(rung.level)),
            "unfinished": run.unfinished,
            "late_ms": late_ms,
            "foreign": None,
            "power": None,
            "gpus": [],
            "machine": None,
            "counters": None,
            "notes": request_notes(requests, run),
            **drafting(acceptance_of(requests, [], log=None)),
        }
        step["notes"] += number_notes(step)
        if step["status"] == OK and not step["completed"]:
            step["status"] = BROKEN
        return step, requests

    async def read_context(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> Context:
        """Read counters, machine and clocks, once the server has no running request."""
        counters = await settled(lambda: read_counters(session, endpoint))
        return Context(counters, await asyncio.to_thread(read_machine), read_clocks())

    def in_context(self, step: LadderStep, requests: Sequence[Request], before: Context, after: Context) -> LadderStep:
        """The step with acceptance by the counters, the machine's activity, other clients' traffic and clock jumps."""
        endpoint = self.endpoints[step["arm"]]
        pair: CounterPair = {"before": before.counters, "after": after.counters}
        pids = own_pids([endpoint], before.machine) | own_pids([endpoint], after.machine)
        sent = [*requests, *[GIVEN_UP] * step["unfinished"]]
        most_tokens = max((request.output_tokens for request in self.requests[step["kind"]]), default=0)
        traffic = foreign_work(before.counters, after.counters, sent, most_tokens)
        step = {
            **step,
            **drafting(acceptance_of(requests, [pair], log=None)),
            "machine": between(before.machine, after.machine, pids),
            "counters": pair,
            "foreign": traffic,
        }
        for cause in (traffic, clock_jump(before.clocks, after.clocks)):
            if cause and cause["said"]:
                merge_readings(step, {"notes": [cause["said"]], "status": POLLUTED if cause["polluted"] else OK})
        return step

    def store(self, step: LadderStep, requests: Sequence[Request] | None = None) -> None:
        """Store a step; ``requests`` None keeps those that were stored with it before."""
        self.file.add(step, requests)
        if step["arm"] not in self.given_up:
            # The arm is measured again, so an earlier run's note that it was given up is no longer true.
            self.file.drop_notes(lambda note: is_give_up_note(note, step["arm"], self.plan.rounds))
        self.on_step(step)

    # --- an engine that dies ----------------------------------------------------------------------

    async def note_death(self, step: LadderStep, rung: Rung, run: LoadRun) -> None:
        """Mark the step as broken if its engine died during it; an engine without a failed request has not died."""
        if run.ended_by == FAILED_IN_A_ROW:
            checks = ASK_AGAIN
        elif run.lost:
            checks = 1  # an engine that stayed dead would have failed `IN_A_ROW` requests
        else:
            return
        for attempt in range(checks):
            if attempt:
                await asyncio.sleep(ASK_AGAIN_S)
            if await self.watch.died(rung.arm):
                step |= {"status": BROKEN, "ended_by": DIED}
                note = "the engine died during this step"
                if why := await self.watch.why(rung.arm):
                    note += f": {why}"
                step["notes"].append(note)
                return

    async def bring_back(self, step: LadderStep, rung: Rung) -> None:
        """Let the arm be restarted, once in a run; after its second death the arm is given up."""
        if rung.arm in self.restarted:
            self.give_up(rung, "it died again after it was restarted")
            return
        self.restarted.add(rung.arm)
        self.show(f"{rung.name}: the engine died; waiting for its restart")
        try:
            note = await self.watch.bring_back(rung.arm)
        except DrafthouseError as error:
            self.give_up(rung, f"it did not start again: {error.problems[0].found.splitlines()[0]}")
            return
        self.warmed = {warmed for warmed in self.warmed if warmed[0] != rung.arm}  # the new server is cold
        step["restarted"] = True
        step["notes"].append(note)
        self.store(step)

    def give_up(self, rung: Rung, why: str) -> None:
        """Measure no further step of an arm, and say so in the ladder's notes."""
        self.given_up.add(rung.arm)
        self.file.note(f"{rung.arm}: the steps after '{rung.name}' were not measured: {why}")

    # --- progress events --------------------------------------------------------------------------

    def note_ended(self, complete: bool) -> None:
        """Count a request of the current step that ended."""
        self.ended_well += complete

    def show(self, text: str) -> None:
        """Send a progress event with the text, and the number of complete answers once there are any."""
        self.text = text
        if self.ended_well:
            text += f": {self.ended_well} requests"
        self.on_progress(
            {
                "done": self.done,
                "total": len(self.planned),
                "phase": "ladder",
                "text": text,
                "eta_s": self.left_s(),
            }
        )

    def left_s(self) -> float:
        """The remaining seconds: for each step the mean of the measured ones, or the planned time before the first."""
        each_s = self.plan.seconds
        if self.step_times_s:
            each_s = sum(self.step_times_s) / len(self.step_times_s)
        current_s = max(0.0, each_s - (time.perf_counter() - self.began_s))
        return round(current_s + each_s * max(0, len(self.planned) - self.done - 1), 1)

    async def heartbeat(self) -> None:
        """Repeat the last progress event every `HEARTBEAT_S` until it is cancelled."""
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                self.show(self.text)
