"""Measure one step: a single server, or the arms of an experiment (baseline, speculative) in turns.

All arms are measured under equal conditions: a warm-up with separate prompts; the same prompts, settings and output
lengths; the arms in turns, so that a slow drift of the machine affects both. The engine's counters, the machine's state
and its clocks are read before and after every group of requests (one prompt kind at one temperature). Work of the
server beyond our requests is other clients' traffic (`foreign_traffic.py`), and is recorded with the counters.
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
from .client import FAILED, ChatRequest, Endpoint, Recording, closed_loop, open_session, raw_request, send
from .foreign_traffic import clock_jump, foreign_work, read_clocks, settled, token_sums
from .groups import Group, StepOptions, plan_groups
from .instruments import Instruments, instruments
from .machine_state import MachineState, between, read_machine
from .output_scoring import token_ids_of
from .own_processes import local_engine_pids, own_pids
from .power import Tally
from .spec_metrics import count_tokens, is_late, read_counters, unreadable
from .standstill import standstill_error, wait_for_standstill
from .usage_check import TOKENIZED, may_be_tokenized

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GroupMachine, MachineFacts
    from drafthouse.bench.result_types import Request, Snapshot, StepArm, StepResult, StepSettings, WarmUp
    from drafthouse.core.progress import Tell
    from drafthouse.prompts.suite_types import Suite

#: The longest time between two progress events, in seconds.
HEARTBEAT_S = 5.0
#: The engines whose server counts the tokens of a text.
_TOKENIZERS = [engine.name for engine in DIALECTS.values() if engine.tokenizes]
#: Output tokens of a warm-up request: enough for the engine to draft.
WARMUP_TOKENS = 32
#: After this many timeouts in a row a server's counters are not read any more.
_MOST_TIMEOUTS = 2

#: Gets a step that was stopped, with its finished requests.
OnStopped = Callable[["StepResult"], None]


async def warm_up(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    requests: int,
    *,
    concurrency: int,
    seed: int | None,
    ignore_eos: bool,
) -> WarmUp:
    """Send ``requests`` prompts that no suite has, so that the engine's caches do not help any measured request.

    Failed ones raise nothing: the result counts them, with the first one's error.
    """
    warm_up_requests = [
        ChatRequest(
            suite="warm-up",
            kind="warm-up",
            group="warm-up",
            prompt_id=f"warm-up-{index}",
            messages=[{"role": "user", "content": f"Count upwards from {100 * index + 7}, one number a line."}],
            output_tokens=WARMUP_TOKENS,
            seed=seed,
            ignore_eos=ignore_eos,
        )
        for index in range(1, requests + 1)
    ]
    records = await closed_loop(session, endpoint, warm_up_requests, concurrency)
    answers = [raw_request(record, endpoint, 0.0) for record in records]
    errors = [answer["error"] for answer in answers if answer["status"] == FAILED]
    return {"sent": len(answers), "failed": len(errors), "error": errors[0] if errors else None}


def run_step(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    options: StepOptions,
    on_progress: Tell = lambda event: None,
    on_stopped: OnStopped = lambda step: None,
    gpus: Sequence[str] = (),
) -> StepResult:
    """Measure a step as `measure_step` does, from code that is not asynchronous."""
    return asyncio.run(measure_step(endpoints, suites, options, on_progress, on_stopped, gpus))


async def measure_step(
    endpoints: Sequence[Endpoint],
    suites: Sequence[Suite],
    options: StepOptions,
    on_progress: Tell = lambda event: None,
    on_stopped: OnStopped = lambda step: None,
    gpus: Sequence[str] = (),
) -> StepResult:
    """Measure a step and return it as plain data.

    Two endpoints are measured in turns: at concurrency 1 prompt by prompt, with the order swapped at every prompt and
    every round; above it group by group, with the order swapped at every group and round.

    ``on_progress`` gets {done, total, phase, text, eta_s} after each request and at least every 5 seconds. ``gpus``
    selects the GPUs to sample (`nvml.open_nvml`). Raises DrafthouseError if the plan is wrong or an arm answers no
    warm-up request, and StoodStill if an engine, this process or the machine stood still. Failed requests are recorded
    in the step. On an interrupt or a standstill, ``on_stopped`` gets the finished requests, marked ``incomplete``.
    """
    groups = plan_groups(suites, options)
    warmups = options.concurrency if options.warmups is None else options.warmups
    names = [str(suite["name"]) for suite in suites]
    with instruments(endpoints, gpus) as opened:
        step = _Step(endpoints, options, groups, warmups, on_progress, names, opened)
        async with open_session(options.timeout_s, endpoints[0].ca_pem) as session:
            beat = asyncio.create_task(step.heartbeat())
            watching = asyncio.create_task(wait_for_standstill(lambda: local_engine_pids(endpoints)))
            measuring = asyncio.create_task(step.measure(session))
            try:
                await asyncio.wait({measuring, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not watching.done():
                    return await measuring
                on_stopped(step.partial_result())
                raise standstill_error(watching.result(), step.pending_requests())
            except asyncio.CancelledError:
                on_stopped(step.partial_result())
                raise
            finally:
                for task in (beat, watching, measuring):
                    task.cancel()
                await asyncio.gather(measuring, return_exceptions=True)


@dataclass(frozen=True)
class _CurrentGroup:
    """The group that is being measured."""

    group: Group
    before: Mapping[str, Snapshot]  # the counters before it, by arm
    records: dict[str, list[Recording]]  # of the requests that have ended, by arm


class _Step:
    """The state of a step while it is being measured; `measure` runs it."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        options: StepOptions,
        groups: Sequence[Group],
        warmups: int,
        on_progress: Tell,
        suites: list[str],
        opened: Instruments,
    ) -> None:
        self.endpoints = list(endpoints)
        self.suites = suites
        self.options = options
        self.groups = groups
        self.warmups = warmups
        self.on_progress = on_progress
        self.nvml = opened.nvml
        self.meter = opened.meter
        self.sampler = opened.sampler
        self.start_s = time.perf_counter()
        self.started = datetime.now(timezone.utc)
        self.clock = read_step_clock()
        self.machine_before: MachineFacts = {}
        self.group_machines: list[GroupMachine] = []
        self.current: _CurrentGroup | None = None
        self.counters: dict[str, Snapshot] = {}  # as last read, by arm
        self.timeouts = dict.fromkeys((endpoint.arm for endpoint in endpoints), 0)  # in a row, by arm
        self.done = 0  # ended requests of both arms
        self.total = sum(len(group.requests) for group in groups) * len(self.endpoints)
        self.measuring_since_s: float | None = None  # None: before the first measured request
        self.phase = "warm-up"
        self.text = ""
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
        """Measure all groups in their order, after the idle power and the warm-up."""
        self.started = datetime.now(timezone.utc)
        self.clock = read_step_clock()
        self.start_s = time.perf_counter()
        self.machine_before = (await self.read_machine()).facts
        await asyncio.to_thread(self.meter.measure_idle)
        for endpoint in self.endpoints:
            await self.warm_up(session, endpoint)
        self.measuring_since_s = time.perf_counter()
        for group in self.groups:
            self.group_machines.append(await self.measure_group(session, group))
        return self.as_data((await self.read_machine()).facts)

    async def read_machine(self) -> MachineState:
        """The machine's state, read in a thread because the driver's calls may block."""
        return await asyncio.to_thread(read_machine, nvml=self.nvml)

    def as_data(self, after: MachineFacts) -> StepResult:
        """The step as plain data; ``after`` is the state of the machine at its end."""
        settings = asdict(self.options)
        settings |= {"warmups": self.warmups, "interleaved": len(self.endpoints) > 1}
        return {
            "schema": "drafthouse.step/1",
            "started": self.started.isoformat(timespec="seconds"),
            "started_unix_s": self.started.timestamp(),
            "clock": self.clock,
            "duration_s": time.perf_counter() - self.start_s,
            "settings": cast("StepSettings", settings),
            "suites": self.suites,
            "arms": self.arms,
            "power_meter": self.meter.facts(),
            "machine": {"before": self.machine_before, "after": after, "groups": self.group_machines},
        }

    def partial_result(self) -> StepResult:
        """The step when it is stopped, with the ended requests of the current group, marked ``incomplete``."""
        if self.current is not None:
            unread = unreadable("stopped before the end of the group")
            for endpoint in self.endpoints:
                if records := self.current.records[endpoint.arm]:
                    self.store_group(endpoint, self.current.group, records, self.current.before[endpoint.arm], unread)
                    power = self.arms[endpoint.arm]["power"]
                    power.append({"round": self.current.group.round, "group": self.current.group.key, "span": None})
        # The machine's state is not read again, because a user who pressed Ctrl-C wants the numbers at once.
        return self.as_data(self.machine_before) | {"incomplete": True}

    def pending_requests(self) -> str:
        """A phrase that names the requests without an answer so far."""
        if self.current is None:
            return f"in phase: {self.phase}"
        group = self.current.group
        pending = []
        for endpoint in self.endpoints:
            ended = {record.request.prompt_id for record in self.current.records[endpoint.arm]}
            unanswered = [
                f"{endpoint.arm}: {request.prompt_id}" for request in group.requests if request.prompt_id not in ended
            ]
            pending += unanswered[: group.concurrency]  # no more than these can be running
        return f"{group.key} was asked in round {group.round} (waiting or next: {listing(pending[:6])})"

    async def warm_up(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Warm up an arm, if the step has warm-ups. Raises DrafthouseError if none of them is answered."""
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
        """Measure a group on all arms and store what was measured; the result is the machine's part of it."""
        state = await self.read_machine()
        before = await self.read_counters(session)
        clocks = read_clocks()
        # The arm that begins alternates with every group and every round.
        endpoints = self.in_turn(group.place + group.round)
        records: dict[str, list[Recording]] = {}
        ended: dict[str, list[Recording]] = {}
        tallies: dict[str, Tally] = {}
        for endpoint in endpoints:
            records[endpoint.arm] = []
            ended[endpoint.arm] = []  # filled request by request, for a step that is stopped
            tallies[endpoint.arm] = Tally(self.meter)
        self.current = _CurrentGroup(group, before, ended)
        self.text = f"{group.key}, round {group.round}"
        self.sampler.forget()
        if group.concurrency == 1 and len(endpoints) > 1:
            for index, request in enumerate(group.requests):
                for endpoint in self.in_turn(index + group.round):
                    with tallies[endpoint.arm]:
                        record = await send(session, endpoint, request)
                    records[endpoint.arm].append(record)
                    self.note_ended(endpoint, record)
        else:
            for endpoint in endpoints:
                with tallies[endpoint.arm]:
                    records[endpoint.arm] = await closed_loop(
                        session, endpoint, group.requests, group.concurrency, partial(self.note_ended, endpoint)
                    )
        jump = clock_jump(clocks, read_clocks())
        after = await self.read_counters(session)
        state_after = await self.read_machine()
        self.current = None
        for endpoint in self.endpoints:
            self.store_group(endpoint, group, records[endpoint.arm], before[endpoint.arm], after[endpoint.arm])
            arm = self.arms[endpoint.arm]
            tally = tallies[endpoint.arm]
            arm["power"].append({"round": group.round, "group": group.key, "span": tally.total()})
            if summaries := self.sampler.summaries(tally.turns):
                arm["gpus"].append({"round": group.round, "group": group.key, "gpus": summaries})
        self.note_foreign_work(group, before, after)
        await self.tokenize(session)
        pids = own_pids(self.endpoints, state) | own_pids(self.endpoints, state_after)
        return {
            "round": group.round,
            "group": group.key,
            "before": state.facts,
            "after": state_after.facts,
            "between": between(state, state_after, pids),
            "clock": jump,
        }

    def note_foreign_work(self, group: Group, before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> None:
        """Add to each arm's last counters the server's work for other clients, and its tokens by counter and usage."""
        most_tokens = max((request.output_tokens for request in group.requests), default=0)
        sent: dict[str, list[Request]] = {}
        for endpoint in self.endpoints:
            # Two arms may share an address (a server compared with itself); its counters then hold both arms' requests.
            ended = self.arms[endpoint.arm]["requests"][-len(group.requests) :]
            sent.setdefault(endpoint.counters_url, []).extend(ended)
        for endpoint in self.endpoints:
            foreign = foreign_work(before[endpoint.arm], after[endpoint.arm], sent[endpoint.counters_url], most_tokens)
            self.arms[endpoint.arm]["counters"][-1] |= {
                "foreign": foreign,
                "counted": token_sums(before[endpoint.arm], after[endpoint.arm], sent[endpoint.counters_url]),
            }

    async def tokenize(self, session: aiohttp.ClientSession) -> None:
        """Let the engine's tokenizer count a few answers of the last group; after an error it is not called any more.

        This happens after the group's streams have ended, so it delays no measured request.
        """
        for endpoint in self.endpoints:
            arm = self.arms[endpoint.arm]
            last = arm["counters"][-1]
            if last["after"].get("dialect") not in _TOKENIZERS:
                arm["tokenizer"]["error"] = f"only known for {listing(_TOKENIZERS)}, by their counters"
                continue
            answers = []
            for request in arm["requests"]:
                in_group = (request["group"], request["round"]) == (last["group"], last["round"])
                if in_group and may_be_tokenized(request):
                    answers.append(request)
            for request in answers[:TOKENIZED]:
                if arm["tokenizer"]["error"] is None:
                    tokens, error = await count_tokens(session, endpoint, request["text"])
                    request["tokenized"] = tokens
                    arm["tokenizer"]["error"] = error

    def in_turn(self, number: int) -> list[Endpoint]:
        """The endpoints, in reverse order if ``number`` is even."""
        return self.endpoints if number % 2 else self.endpoints[::-1]

    async def read_counters(self, session: aiohttp.ClientSession) -> dict[str, Snapshot]:
        """The counters of every arm, read when its server has no running request.

        After two timeouts in a row a server is not read any more, because every group would wait for it twice.
        """
        for endpoint in self.endpoints:
            arm = endpoint.arm
            if self.timeouts[arm] < _MOST_TIMEOUTS:
                self.counters[arm] = await settled(partial(read_counters, session, endpoint))
                self.timeouts[arm] += 1
                if not is_late(self.counters[arm]):
                    self.timeouts[arm] = 0
        return dict(self.counters)

    def store_group(
        self,
        endpoint: Endpoint,
        group: Group,
        records: Sequence[Recording],
        before: Snapshot,
        after: Snapshot,
    ) -> None:
        """Append a group's requests, duration and counters to the arm's measurements."""
        arm = self.arms[endpoint.arm]
        starts = []
        ends = []
        seconds = []
        for record in records:
            arm["requests"].append(raw_request(record, endpoint, self.start_s))
            ids = token_ids_of(record)
            if ids:
                arm["token_ids"].append(ids)
            start_s = record.sent_s or record.began_s
            starts.append(start_s)
            ends.append(record.ended_s)
            seconds.append(record.ended_s - start_s)
        # At concurrency 1 the requests' times are summed, because the other arm's turns lie between them.
        duration = sum(seconds)
        if group.concurrency > 1:
            duration = max(ends) - min(starts)
        arm["spans"].append({"round": group.round, "group": group.key, "duration_s": duration})
        arm["counters"].append({"round": group.round, "group": group.key, "before": before, "after": after})

    def note_ended(self, endpoint: Endpoint, record: Recording) -> None:
        """Record that a request ended, in case the step is stopped, and show the progress."""
        self.done += 1
        if self.current is not None:
            self.current.records[endpoint.arm].append(record)
        self.show("measure", self.text)

    def show(self, phase: str, text: str) -> None:
        """Send a progress event; ``eta_s`` is None until a measured request has ended."""
        self.phase = phase
        self.text = text
        eta = None
        if self.measuring_since_s is not None and self.done:
            each_s = (time.perf_counter() - self.measuring_since_s) / self.done
            eta = round(each_s * (self.total - self.done), 1)
        self.on_progress({"done": self.done, "total": self.total, "phase": phase, "text": text, "eta_s": eta})

    async def heartbeat(self) -> None:
        """Repeat the last progress event until it is cancelled, so that a watcher sees that the step still runs."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self.show(self.phase, self.text)
