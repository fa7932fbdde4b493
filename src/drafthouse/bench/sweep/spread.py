"""One level of load that several client processes put on a server together; see `client_pool`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING

import aiohttp

from ...bench.client import Ask, Endpoint
from ...prompts.load_levels import CLOSED
from .level import LoadOptions, LoadRun, arrivals
from .shares import due_times

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request
    from drafthouse.bench.sweep.client_pool import ClientProcess
    from drafthouse.bench.sweep.client_process import Order, Said
    from drafthouse.bench.sweep.ladder_types import ClientPart
    from drafthouse.bench.sweep.plan import LadderPlan, Rung

#: From the orders to the beginning, in seconds: each process has read its own by then, also over a slow connection.
LEAD_S = 0.5
#: How long a process that gives up may take to say what has ended until then, in seconds.
_GIVE_UP_S = 30.0
_LOOK_EVERY_S = 0.05


class SpreadRun(LoadRun):
    """A level of load of several processes. When it is over is decided here, from what all of them say."""

    def __init__(
        self,
        endpoint: Endpoint,
        asks: Sequence[Ask],
        plan: LadderPlan,
        rung: Rung,
        options: LoadOptions,
        on_done: Callable[[bool], None],
        parts: Sequence[ClientProcess],
    ) -> None:
        super().__init__(endpoint, asks, options, on_done)
        self._asked, self._plan, self._rung, self._parts = asks, plan, rung, parts
        self._begun_by = [0] * len(parts)
        self._done_by: dict[int, Said] = {}

    def late_s(self) -> list[float]:
        """Return by how much each request of an open loop was sent later than it was due."""
        return [late_s for said in self._done_by.values() for late_s in said["late_s"]]

    def requests(self) -> list[Request]:
        """Return what happened in each request, in the order of their beginning."""
        return sorted(
            (one for said in self._done_by.values() for one in said["requests"]), key=lambda one: one["started_s"]
        )

    def clients(self) -> list[ClientPart]:
        """Return what each process says of itself."""
        return [
            {
                "where": part.where,
                "requests": len(self._done_by[number]["requests"]),
                "cpu_s": round(self._done_by[number]["cpu_s"], 3),
                "clock_error_ms": round(1000 * part.error_s, 3),
            }
            for number, part in enumerate(self._parts)
            if number in self._done_by
        ]

    def _beginning(self) -> float:
        return time.perf_counter() + LEAD_S

    async def _loop(self, session: aiohttp.ClientSession) -> None:
        options = self._options
        due_s = [] if options.load == CLOSED else due_times(arrivals(options.level, options.seed), options.seconds)
        for number, part in enumerate(self._parts):
            await part.order("step", self._order(number, part, due_s))
        following = {asyncio.create_task(self._follow(number)) for number in range(len(self._parts))}
        try:
            waiting, told = following, False
            while waiting:
                ended, waiting = await asyncio.wait(waiting, timeout=_LOOK_EVERY_S)
                for one in ended:
                    one.result()
                if waiting and not told and self.is_over():
                    told = True
                    await self._tell("over")
        except asyncio.CancelledError:
            await self._tell("give_up")
            await asyncio.wait(following, timeout=_GIVE_UP_S)
            raise
        finally:
            for one in following:
                one.cancel()

    def _order(self, number: int, part: ClientProcess, due_s: Sequence[float]) -> Order:
        endpoint, plan, share = self._endpoint, self._plan, (number, len(self._parts))
        return {
            "endpoint": {
                "arm": endpoint.arm,
                "base_url": endpoint.base_url,
                "model": endpoint.model,
                "api_key": endpoint.api_key,
                "asks": endpoint.asks,
                "ca_pem": endpoint.ca_pem,
            },
            "asks": [asdict(ask) for ask in self._asked],
            "plan": {
                "load": plan.load,
                "levels": plan.levels,
                "kinds": plan.kinds,
                "of_rounds": plan.of_rounds,
                "seed": plan.seed,
            },
            "rung": astuple(self._rung),
            "share": list(share),
            "due_s": list(due_s[number :: len(self._parts)]),
            "begin_s": self.began_s + part.offset_s,
            "seconds": self._options.seconds,
            "timeout_s": plan.timeout_s,
            "narrow": self._options.narrow is not None,
        }

    async def _follow(self, number: int) -> None:
        while True:
            said = await self._parts[number].hear()
            if said["kind"] not in ("told", "done"):
                continue
            self._begun_by[number] = said["begun"]
            self.begun = sum(self._begun_by)
            for well, prompt, tpot in said["ended"]:
                self._has_ended(well, prompt, tpot)
            if said["kind"] == "done":
                self._done_by[number] = said
                return

    async def _tell(self, do: str) -> None:
        for part in self._parts:
            await part.order(do)
