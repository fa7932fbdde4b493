"""Measure one step: one server alone, or the arms of an experiment in turns, under equal conditions.

The conditions (DESIGN.md, "Honest numbers"): warm-up first with prompts of its own; the same prompts,
settings and output lengths for every arm; the arms in turns, so that a drift of the machine meets both;
counters, the machine's state and its clocks before and after every group of requests. What the counters moved
further than our own requests explain was somebody else's traffic (`foreign_traffic.py`), and is kept beside them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, cast

import aiohttp

from ..core.errors import one_problem
from ..core.format import count, listing
from ..core.plain_text import without_passwords
from ..core.step_clock import read_step_clock
from ..engines.registry import DIALECTS
from .client import FAILED, Ask, Endpoint, Recording, closed_loop, open_session, raw_request, send
from .foreign_traffic import clock_jump, counted, foreign, read_clocks, settled
from .groups import Group, StepOptions, plan_groups
from .instruments import Instruments, instruments
from .machine_state import MachineState, between, read_machine
from .output_scoring import token_ids_of
from .own_processes import engines_here, own_pids
from .power import Tally
from .spec_metrics import count_tokens, is_late, read_counters, unreadable
from .standstill import stood_still, until_something_stands
from .usage_check import TOKENIZED, may_be_tokenized

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GroupMachine, MachineFacts
    from drafthouse.bench.result_types import Request, Snapshot, StepArm, StepResult, StepSettings, WarmUp
    from drafthouse.core.progress import Tell
    from drafthouse.prompts.suite_types import Suite

#: The least time between two signs of life, in seconds.
HEARTBEAT_S = 5.0
_TOKENIZERS = [engine.name for engine in DIALECTS.values() if engine.tokenizes]
#: Output tokens of a warm-up request: enough for the engine to draft.
WARMUP_TOKENS = 32
#: How often in a row the counters of a server may be late before they are asked for no more.
_LATE = 2

Stopped = Callable[["StepResult"], None]


async def warm_up(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    number: int,
    *,
    concurrency: int,
    seed: int | None,
    ignore_eos: bool,
) -> WarmUp:
    """Send ``number`` prompts that no suite holds, so that nothing the engine remembers of them helps later."""
    asks = [
        Ask(
            suite="warm-up",
            kind="warm-up",
            group="warm-up",
            prompt_id=f"warm-up-{place}",
            messages=[{"role": "user", "content": f"Count upwards from {100 * place + 7}, one number a line."}],
            output_tokens=WARMUP_TOKENS,
            seed=seed,
            ignore_eos=ignore_eos,
        )
        for place in range(1, number + 1)
    ]
    records = await closed_loop(session, endpoint, asks, concurrency)
    answers = [raw_request(record, endpoint, 0.0) for record in records]
    errors = [answer["error"] for answer in answers if answer["status"] == FAILED]
    return {"sent": len(answers), "failed": len(errors), "error": errors[0] if errors else None}


def run_step(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    options: StepOptions,
    on_progress: Tell = lambda event: None,
    on_stopped: Stopped = lambda step: None,
    gpus: Sequence[str] = (),
) -> StepResult:
    """Measure a step and return it as plain data; see `measure_step`."""
    return asyncio.run(measure_step(endpoints, suites, options, on_progress, on_stopped, gpus))


async def measure_step(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    options: StepOptions,
    on_progress: Tell = lambda event: None,
    on_stopped: Stopped = lambda step: None,
    gpus: Sequence[str] = (),
) -> StepResult:
    """Measure a step and return it as plain data.

    Several endpoints are measured in turns: at concurrency 1 prompt by prompt, the order swapped at every
    prompt and every round; above it group by group, the order swapped likewise.

    ``on_progress`` gets {done, total, phase, text, eta_s} as requests end and at least every 5 seconds. Raises
    DrafthouseError when the plan is wrong, or when an arm answers no warm-up request at all, and StoodStill when an
    engine, this process or the machine stood still meanwhile. Requests that fail while measuring are counted in the
    step and raise nothing. When it is interrupted or stood still, ``on_stopped`` gets the step with the requests that
    had ended, and ``incomplete`` in it. ``gpus`` are read meanwhile, see `nvml.open_nvml`.
    """
    groups = plan_groups(suites, options)
    warmups = options.concurrency if options.warmups is None else options.warmups
    names = [str(suite["name"]) for suite in suites]
    with instruments(endpoints, gpus) as held:
        step = _Step(endpoints, options, groups, warmups, on_progress, names, held)
        async with open_session(options.timeout_s, endpoints[0].ca_pem) as session:
            beat = asyncio.create_task(step.heartbeat())
            watching = asyncio.create_task(until_something_stands(lambda: engines_here(endpoints)))
            measuring = asyncio.create_task(step.measure(session))
            try:
                await asyncio.wait({measuring, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not watching.done():
                    return await measuring
                on_stopped(step.so_far())
                raise stood_still(watching.result(), step.under_way())
            except asyncio.CancelledError:
                on_stopped(step.so_far())
                raise
            finally:
                for task in (beat, watching, measuring):
                    task.cancel()
                await asyncio.gather(measuring, return_exceptions=True)


@dataclass(frozen=True)
class _Going:
    """A group under way: the counters before it, and of each arm the requests that have ended."""

    group: Group
    counted: Mapping[str, Snapshot]
    records: dict[str, list[Recording]]


class _Step:
    """A step while it is being measured."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        options: StepOptions,
        groups: Sequence[Group],
        warmups: int,
        on_progress: Tell,
        suites: list[str],
        held: Instruments,
    ) -> None:
        self.endpoints = list(endpoints)
        self.suites = suites
        self.options = options
        self.groups = groups
        self.warmups = warmups
        self.on_progress = on_progress
        self.nvml, self.meter, self.sampler = held.nvml, held.meter, held.sampler
        self.zero_s = time.perf_counter()
        self.started = datetime.now(timezone.utc)
        self.clock = read_step_clock()
        self.before: MachineFacts = {}
        self.machine: list[GroupMachine] = []
        self.going: _Going | None = None
        self.counters: dict[str, Snapshot] = {}
        self.late = dict.fromkeys((endpoint.arm for endpoint in endpoints), 0)
        self.done = 0
        self.total = sum(len(group.asks) for group in groups) * len(self.endpoints)
        self.measuring_since_s: float | None = None
        self.phase, self.text = "warm-up", ""
        self.arms: dict[str, StepArm] = {
            endpoint.arm: {
                "model_id": endpoint.model,
                "base_url": without_passwords(endpoint.base_url),
                "requests": [],
                "spans": [],
                "counters": [],
                "power": [],
                "gpus": [],
                "tokenizer": {"error": None},
                "token_ids": [],
                "warmup": {"sent": 0, "failed": 0, "error": None},
            }
            for endpoint in self.endpoints
        }

    async def measure(self, session: aiohttp.ClientSession) -> StepResult:
        self.started = datetime.now(timezone.utc)
        self.clock = read_step_clock()
        self.zero_s = time.perf_counter()
        self.before = (await self.read_machine()).facts
        await asyncio.to_thread(self.meter.measure_idle)
        for endpoint in self.endpoints:
            await self.warm_up(session, endpoint)
        self.measuring_since_s = time.perf_counter()
        for group in self.groups:
            self.machine.append(await self.measure_group(session, group))
        return self.as_data((await self.read_machine()).facts)

    async def read_machine(self) -> MachineState:
        return await asyncio.to_thread(read_machine, nvml=self.nvml)

    def as_data(self, after: MachineFacts) -> StepResult:
        """What was measured; ``after`` is the state of the machine at the end."""
        settings = asdict(self.options)
        settings |= {"warmups": self.warmups, "interleaved": len(self.endpoints) > 1}
        return {
            "schema": "drafthouse.step/1",
            "started": self.started.isoformat(timespec="seconds"),
            "started_unix_s": self.started.timestamp(),
            "clock": self.clock,
            "duration_s": time.perf_counter() - self.zero_s,
            "settings": cast("StepSettings", settings),
            "suites": self.suites,
            "arms": self.arms,
            "power_meter": self.meter.facts(),
            "machine": {"before": self.before, "after": after, "groups": self.machine},
        }

    def so_far(self) -> StepResult:
        """The step as it stands when it is stopped: of the group under way, the requests that had ended."""
        if self.going is not None:
            nothing = unreadable("stopped before the end of the group")
            for endpoint in self.endpoints:
                if records := self.going.records[endpoint.arm]:
                    self.keep(endpoint, self.going.group, records, self.going.counted[endpoint.arm], nothing)
                    power = self.arms[endpoint.arm]["power"]
                    power.append({"round": self.going.group.round, "group": self.going.group.key, "span": None})
        # The machine is not read again: whoever pressed Ctrl-C wants to see the numbers now.
        return self.as_data(self.before) | {"incomplete": True}

    def under_way(self) -> str:
        """Which requests wait for an answer now, for people."""
        if self.going is None:
            return f"in phase: {self.phase}"
        group, waiting = self.going.group, []
        for endpoint in self.endpoints:
            ended = {record.ask.prompt_id for record in self.going.records[endpoint.arm]}
            left = [f"{endpoint.arm}: {ask.prompt_id}" for ask in group.asks if ask.prompt_id not in ended]
            waiting += left[: group.concurrency]
        return f"{group.key} was asked in round {group.round} (waiting or next: {listing(waiting[:6])})"

    async def warm_up(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        if not self.warmups:
            return
        self.show("warm-up", f"{endpoint.arm}: {count(self.warmups, 'request')}, not measured")
        warmed = await warm_up(
            session,
            endpoint,
            self.warmups,
            concurrency=self.options.concurrency,
            seed=self.options.seed,
            ignore_eos=self.options.ignore_eos,
        )
        self.arms[endpoint.arm]["warmup"] = warmed
        if warmed["failed"] == warmed["sent"]:
            raise one_problem(
                "request-failed",
                f"{warmed['error']}",
                "a server that answers chat requests",
                "check the engine's last log lines, the address, the key and the model's name",
                f"arm {endpoint.arm}: {endpoint.chat_url}",
            )

    async def measure_group(self, session: aiohttp.ClientSession, group: Group) -> GroupMachine:
        state = await self.read_machine()
        before = await self.read_counters(session)
        clocks = read_clocks()
        # Every second group begins with the other arm, and every second round too.
        endpoints = self.in_turn(group.place + group.round)
        records: dict[str, list[Recording]] = {}
        ended: dict[str, list[Recording]] = {}
        used: dict[str, Tally] = {}
        for endpoint in endpoints:
            records[endpoint.arm], ended[endpoint.arm], used[endpoint.arm] = [], [], Tally(self.meter)
        self.going = _Going(group, before, ended)
        self.text = f"{group.key}, round {group.round}"
        self.sampler.forget()
        if group.concurrency == 1 and len(endpoints) > 1:
            for place, ask in enumerate(group.asks):
                for endpoint in self.in_turn(place + group.round):
                    with used[endpoint.arm]:
                        record = await send(session, endpoint, ask)
                    records[endpoint.arm].append(record)
                    self.count(endpoint, record)
        else:
            for endpoint in endpoints:
                with used[endpoint.arm]:
                    records[endpoint.arm] = await closed_loop(
                        session, endpoint, group.asks, group.concurrency, partial(self.count, endpoint)
                    )
        jump = clock_jump(clocks, read_clocks())
        after = await self.read_counters(session)
        state_after = await self.read_machine()
        self.going = None
        for endpoint in self.endpoints:
            self.keep(endpoint, group, records[endpoint.arm], before[endpoint.arm], after[endpoint.arm])
            arm, turns = self.arms[endpoint.arm], used[endpoint.arm]
            arm["power"].append({"round": group.round, "group": group.key, "span": turns.total()})
            if seen := self.sampler.measured(turns.turns):
                arm["gpus"].append({"round": group.round, "group": group.key, "gpus": seen})
        self.look_for_others(group, before, after)
        await self.tokenize(session)
        own = own_pids(self.endpoints, state) | own_pids(self.endpoints, state_after)
        return {
            "round": group.round,
            "group": group.key,
            "before": state.facts,
            "after": state_after.facts,
            "between": between(state, state_after, own),
            "clock": jump,
        }

    def look_for_others(self, group: Group, before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> None:
        """Note beside an arm's counters what its server did meanwhile for somebody else, and for us."""
        most = max((ask.output_tokens for ask in group.asks), default=0)
        sent: dict[str, list[Request]] = {}
        for endpoint in self.endpoints:
            # Two arms may be asked at one address (a server against itself): then both arms' requests are ours.
            sent.setdefault(endpoint.counters_url, []).extend(self.arms[endpoint.arm]["requests"][-len(group.asks) :])
        for endpoint in self.endpoints:
            found = foreign(before[endpoint.arm], after[endpoint.arm], sent[endpoint.counters_url], most)
            self.arms[endpoint.arm]["counters"][-1] |= {
                "foreign": found,
                "counted": counted(before[endpoint.arm], after[endpoint.arm], sent[endpoint.counters_url]),
            }

    async def tokenize(self, session: aiohttp.ClientSession) -> None:
        """Have the engine's own tokenizer count a few of the answers that a group just gave; once it has none, no more.

        The streams are over then, so that nothing that is measured waits for it.
        """
        for endpoint in self.endpoints:
            arm = self.arms[endpoint.arm]
            last = arm["counters"][-1]
            if last["after"].get("dialect") not in _TOKENIZERS:
                arm["tokenizer"]["error"] = f"only known for {listing(_TOKENIZERS)}, by their counters"
                continue
            answers = []
            for request in arm["requests"]:
                of_group = (request["group"], request["round"]) == (last["group"], last["round"])
                if of_group and may_be_tokenized(request):
                    answers.append(request)
            for request in answers[:TOKENIZED]:
                if arm["tokenizer"]["error"] is None:
                    number, error = await count_tokens(session, endpoint, request["text"])
                    request["tokenized"], arm["tokenizer"]["error"] = number, error

    def in_turn(self, number: int) -> list[Endpoint]:
        """The endpoints, in reverse every second time."""
        return self.endpoints if number % 2 else self.endpoints[::-1]

    async def read_counters(self, session: aiohttp.ClientSession) -> dict[str, Snapshot]:
        """The counters of every arm, each once its server has nothing to do.

        A server that was late twice in a row is asked no more: every group would wait for it twice.
        """
        for endpoint in self.endpoints:
            arm = endpoint.arm
            if self.late[arm] < _LATE:
                self.counters[arm] = await settled(partial(read_counters, session, endpoint))
                self.late[arm] += 1
                if not is_late(self.counters[arm]):
                    self.late[arm] = 0
        return dict(self.counters)

    def keep(
        self,
        endpoint: Endpoint,
        group: Group,
        records: Sequence[Recording],
        before: Snapshot,
        after: Snapshot,
    ) -> None:
        arm = self.arms[endpoint.arm]
        starts, ends, seconds = [], [], []
        for record in records:
            arm["requests"].append(raw_request(record, endpoint, self.zero_s))
            ids = token_ids_of(record)
            if ids:
                arm["token_ids"].append(ids)
            start_s = record.sent_s or record.began_s
            starts.append(start_s)
            ends.append(record.ended_s)
            seconds.append(record.ended_s - start_s)
        # One after the other: between them the other arm may have had its turn.
        duration = sum(seconds)
        if group.concurrency > 1:
            duration = max(ends) - min(starts)
        arm["spans"].append({"round": group.round, "group": group.key, "duration_s": duration})
        arm["counters"].append({"round": group.round, "group": group.key, "before": before, "after": after})

    def count(self, endpoint: Endpoint, record: Recording) -> None:
        self.done += 1
        if self.going is not None:
            self.going.records[endpoint.arm].append(record)
        self.show("measure", self.text)

    def show(self, phase: str, text: str) -> None:
        self.phase, self.text = phase, text
        eta = None
        if self.measuring_since_s is not None and self.done:
            each_s = (time.perf_counter() - self.measuring_since_s) / self.done
            eta = round(each_s * (self.total - self.done), 1)
        self.on_progress({"done": self.done, "total": self.total, "phase": phase, "text": text, "eta_s": eta})

    async def heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.show(self.phase, self.text)
