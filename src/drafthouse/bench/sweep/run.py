"""Measure a load ladder: step by step, kept as it goes, also when an engine dies or a person stops it.

What is around one step (each arm, level, kind and round is one): warm-up the first time a level is reached, the
engine's counters, the machine's state and what else is read beside it, before and after.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import aiohttp

from ...bench.client import Ask, Endpoint, open_session
from ...bench.foreign_traffic import GIVEN_UP, Clocks, clock_jump, foreign, read_clocks, settled
from ...bench.machine_state import MachineState, between, read_machine
from ...bench.own_processes import engines_here, own_pids
from ...bench.results import acceptance_of, percentile
from ...bench.spec_metrics import read_counters
from ...bench.standstill import until_something_stands
from ...bench.step import warm_up
from ...core.errors import DrafthouseError
from ...prompts.load_levels import CLOSED
from .level import DIED, FAILED_IN_A_ROW, STOPPED, LoadOptions, LoadRun
from .plan import LadderPlan, Rung, asks_by_kind, endless, rungs
from .stats import step_numbers
from .step_notes import drafting, lay_over, of_arm_given_up, remarks, remarks_on_numbers
from .store import BROKEN, INCOMPLETE, OK, POLLUTED, LadderFile

if TYPE_CHECKING:
    from drafthouse.bench.result_types import CounterPair, Request, Snapshot
    from drafthouse.bench.sweep.ladder_types import Beside as Laid
    from drafthouse.bench.sweep.ladder_types import Ladder, LadderStep
    from drafthouse.core.progress import Tell
    from drafthouse.prompts.suite_types import Suite

#: The least time between two signs of life, in seconds.
HEARTBEAT_S = 1.0
#: A dead engine may still be called alive by what holds it for a moment: how often and when that is asked again.
ASK_AGAIN, ASK_AGAIN_S = 8, 0.25
#: Requests before an open loop, whose level says nothing of how many run at once.
_WARMUPS_OPEN = 4


class Watch(Protocol):
    """Looks after the servers of a ladder."""

    async def died(self, arm: str) -> bool:
        """Whether the arm is gone, or is another process than it was."""

    async def why(self, arm: str) -> str:
        """How an arm that is gone has ended; '' where nobody knows."""

    async def bring_back(self, arm: str) -> str:
        """Wait until the arm answers again, and return what was done as a sentence. Raises DrafthouseError."""


class Beside(Protocol):
    """Something that is read beside one step; made anew for each."""

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Read before the first request."""

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Read after the last one, before anything else is done: what comes later is not the step's."""

    def report(self, requests: Sequence[Request], unfinished: int) -> Laid:
        """What is laid over the step."""


@dataclass(frozen=True)
class Look:
    """What is known of server and machine at one moment."""

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
    beside: Sequence[Callable[[], Beside]] = (),
    on_progress: Tell = lambda event: None,
    on_step: Callable[[LadderStep], None] = lambda step: None,
) -> Ladder:
    """Measure the steps that ``file`` has not, and return the ladder; see `LadderPlan` and `ladder_files`.

    ``on_progress`` gets {done, total, phase, text, eta_s} every second, ``on_step`` each step as it is kept.
    Raises DrafthouseError when the plan is wrong. When it is interrupted, the step that runs is kept as incomplete.
    """
    asks = asks_by_kind(plan, suites)
    ladder = _Ladder(endpoints, asks, plan, file, watch, beside, on_progress, on_step)
    asyncio.run(ladder.measure())
    return file.data


class _Ladder:
    """A ladder while it is being measured."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        asks: Mapping[str, Sequence[Ask]],
        plan: LadderPlan,
        file: LadderFile,
        watch: Watch,
        beside: Sequence[Callable[[], Beside]],
        on_progress: Tell,
        on_step: Callable[[LadderStep], None],
    ) -> None:
        self.endpoints = {endpoint.arm: endpoint for endpoint in endpoints}
        self.asks, self.plan, self.file = asks, plan, file
        self.watch, self.beside = watch, beside
        self.on_progress, self.on_step = on_progress, on_step
        self.warmed: set[tuple[str, float]] = set()
        self.restarted: set[str] = set()
        self.given_up: set[str] = set()
        self.wanted = [rung for rung in rungs(plan, list(self.endpoints)) if not file.has(rung)]
        self.done = 0
        self.took_s: list[float] = []
        self.text, self.began_s = "", time.perf_counter()
        self.ended_well = 0

    async def measure(self) -> None:
        if not self.wanted:
            return
        ca_pem = next(iter(self.endpoints.values())).ca_pem
        async with open_session(self.plan.timeout_s, ca_pem) as session:
            beat = asyncio.create_task(self.heartbeat())
            try:
                for rung in self.wanted:
                    if rung.arm not in self.given_up:
                        await self.step(session, rung)
                    self.done += 1
            finally:
                beat.cancel()

    # --- one step ---------------------------------------------------------------------------------

    async def step(self, session: aiohttp.ClientSession, rung: Rung) -> None:
        self.began_s, self.ended_well = time.perf_counter(), 0
        self.show(f"{rung.name}: warm-up")
        endpoint = self.endpoints[rung.arm]
        run = LoadRun(endpoint, endless(self.asks[rung.kind], self.plan, rung), self.load_of(rung), self.count)
        trouble = await self.warm(session, endpoint, rung.level)
        before = await self.look(session, endpoint)
        besides = [make() for make in self.beside]
        for instrument in besides:
            await instrument.begin(session, endpoint)
        started_unix_s = time.time()
        self.text = rung.name
        watching = asyncio.create_task(until_something_stands(lambda: engines_here([endpoint])))
        try:
            if trouble is None:
                await run.run(session)
            else:
                run.ended_by = FAILED_IN_A_ROW
            for instrument in besides:
                await instrument.end(session, endpoint)
            step, requests = await asyncio.to_thread(self.measured, rung, run, started_unix_s)
            if trouble is not None:
                step["notes"].append(f"no warm-up request was answered: {trouble}")
            for instrument in besides:
                lay_over(step, instrument.report(requests, run.unfinished))
            if watching.done():
                lay_over(step, {"notes": [f"{watching.result()} during this step"], "status": POLLUTED})
            step = self.laid_around(step, requests, before, await self.look(session, endpoint))
            await self.see_to_death(step, rung, run)
        except asyncio.CancelledError:
            step, requests = self.measured(rung, run, started_unix_s)
            self.keep({**step, "status": INCOMPLETE, "ended_by": STOPPED}, requests)
            raise
        finally:
            watching.cancel()
        self.keep(step, requests)
        if step["ended_by"] == DIED:
            await self.bring_back(step, rung)
        self.took_s.append(time.perf_counter() - self.began_s)

    def load_of(self, rung: Rung) -> LoadOptions:
        return LoadOptions(
            load=self.plan.load,
            level=rung.level,
            prompts=len({ask.prompt_id for ask in self.asks[rung.kind]}),
            seconds=self.plan.seconds,
            narrow=self.plan.narrow,
            drain_s=self.plan.drain_s,
            # Both arms meet the same moments of arrival.
            seed=self.plan.seed + 1000 * rung.round + self.plan.levels.index(rung.level),
        )

    def streams(self, level: float) -> int:
        """How many requests a level keeps under way; nobody knows that of an open loop."""
        return int(level) if self.plan.load == CLOSED else 1

    async def warm(self, session: aiohttp.ClientSession, endpoint: Endpoint, level: float) -> str | None:
        """Warm the engine up for a level that it has not seen; return the error when it answered nothing."""
        if (endpoint.arm, level) in self.warmed:
            return None
        number = int(level) if self.plan.load == CLOSED else _WARMUPS_OPEN
        warmed = await warm_up(
            session, endpoint, number, concurrency=number, seed=self.plan.seed, ignore_eos=self.plan.ignore_eos
        )
        if warmed["failed"] == warmed["sent"]:
            return str(warmed["error"])
        self.warmed.add((endpoint.arm, level))
        return None

    def measured(self, rung: Rung, run: LoadRun, started_unix_s: float) -> tuple[LadderStep, list[Request]]:
        """The step as its requests tell it, and these."""
        requests = run.requests()
        late = percentile([1000 * late_s for late_s in run.late_s()], 99)
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
            "late_ms": late,
            "foreign": None,
            "power": None,
            "gpus": [],
            "machine": None,
            "counters": None,
            "notes": remarks(requests, run),
            **drafting(acceptance_of(requests, [], None)),
        }
        step["notes"] += remarks_on_numbers(step)
        if step["status"] == OK and not step["completed"]:
            step["status"] = BROKEN
        return step, requests

    async def look(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> Look:
        """Read what is read before and after a step, once the server has nothing to do."""
        counters = await settled(lambda: read_counters(session, endpoint))
        return Look(counters, await asyncio.to_thread(read_machine), read_clocks())

    def laid_around(self, step: LadderStep, requests: Sequence[Request], before: Look, after: Look) -> LadderStep:
        """The step with what the counters, the machine and its clocks say of the time it ran."""
        endpoint = self.endpoints[step["arm"]]
        pair: CounterPair = {"before": before.counters, "after": after.counters}
        pids = own_pids([endpoint], before.machine) | own_pids([endpoint], after.machine)
        sent = [*requests, *[GIVEN_UP] * step["unfinished"]]
        most = max((ask.output_tokens for ask in self.asks[step["kind"]]), default=0)
        found = foreign(before.counters, after.counters, sent, most)
        step = {
            **step,
            **drafting(acceptance_of(requests, [pair], None)),
            "machine": between(before.machine, after.machine, pids),
            "counters": pair,
            "foreign": found,
        }
        for trouble in (found, clock_jump(before.clocks, after.clocks)):
            if trouble and trouble["said"]:
                lay_over(step, {"notes": [trouble["said"]], "status": POLLUTED if trouble["polluted"] else OK})
        return step

    def keep(self, step: LadderStep, requests: Sequence[Request] | None = None) -> None:
        self.file.add(step, requests)
        if step["arm"] not in self.given_up:
            # The ladder goes on where an earlier run gave it up: what that said is no longer so.
            self.file.drop_notes(lambda note: of_arm_given_up(note, step["arm"], self.plan.rounds))
        self.on_step(step)

    # --- an engine that dies ----------------------------------------------------------------------

    async def see_to_death(self, step: LadderStep, rung: Rung, run: LoadRun) -> None:
        """Mark the step when its engine died while it ran."""
        if run.ended_by == FAILED_IN_A_ROW:
            looks = ASK_AGAIN
        elif run.lost:
            looks = 1
        else:
            return
        for attempt in range(looks):
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
        """Have the arm started again, once; the second time it is given up."""
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
        self.warmed = {warmed for warmed in self.warmed if warmed[0] != rung.arm}
        step["restarted"] = True
        step["notes"].append(note)
        self.keep(step)

    def give_up(self, rung: Rung, why: str) -> None:
        self.given_up.add(rung.arm)
        self.file.note(f"{rung.arm}: the steps after '{rung.name}' were not measured: {why}")

    # --- signs of life ----------------------------------------------------------------------------

    def count(self, well: bool) -> None:
        self.ended_well += well

    def show(self, text: str) -> None:
        self.text = text
        if self.ended_well:
            text += f": {self.ended_well} requests"
        self.on_progress(
            {
                "done": self.done,
                "total": len(self.wanted),
                "phase": "ladder",
                "text": text,
                "eta_s": self.left_s(),
            }
        )

    def left_s(self) -> float:
        """The seconds that are left: of each step its time, or the mean of what the steps took."""
        each = self.plan.seconds
        if self.took_s:
            each = sum(self.took_s) / len(self.took_s)
        going = max(0.0, each - (time.perf_counter() - self.began_s))
        return round(going + each * max(0, len(self.wanted) - self.done - 1), 1)

    async def heartbeat(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                self.show(self.text)
