"""One of several client processes that put a load on a server together: started by `client_pool`, here or over SSH.

It reads orders, and says what it does, as lines of JSON on standard input and output; it ends with its input, so that
nothing is left where the measuring process was killed. Answers are read here once all streams have ended, so that the
processes share that work as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, TypedDict, cast

import aiohttp

from ...prompts.load_levels import CLOSED
from ..client import Ask, Endpoint, Recording, closed_loop, open_loop, open_session, raw_request
from .level import ended_well, quick_tpot
from .plan import LadderPlan, Rung, endless
from .shares import Share

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request

#: How often it says which requests have ended, in seconds.
TELL_EVERY_S = 0.2
#: The longest order: the prompts of a step, in bytes.
MOST_BYTES = 1 << 30

Ended = tuple[bool, str, "float | None"]
"""Of one request: whether it ended well, its prompt, and its time per token (ms) where that was asked for."""


class PlanOrder(TypedDict):
    """Of a ladder's plan, what makes the requests of a step."""

    load: str
    levels: tuple[float, ...]
    kinds: tuple[str, ...]
    of_rounds: int
    seed: int


class Order(TypedDict):
    """One part of a step. ``begin_s`` is of this process's clock, ``due_s`` counts from it."""

    endpoint: dict[str, str | None]
    asks: list[dict[str, object]]
    plan: PlanOrder
    rung: tuple[float, str, int, str]
    share: list[int]
    due_s: list[float]
    begin_s: float
    seconds: float
    timeout_s: float
    narrow: bool


class Said(TypedDict, total=False):
    """What a client process says: ``kind`` is hello, clock, told or done."""

    kind: str
    cores: int
    clock_s: float
    begun: int
    ended: list[Ended]
    requests: list[Request]
    late_s: list[float]
    cpu_s: float


class Part:
    """One part of a step while it is sent."""

    def __init__(self, order: Order, say: Callable[[Said], None]) -> None:
        self.order, self.say = order, say
        self.endpoint = Endpoint(**order["endpoint"])  # type: ignore[arg-type]
        self.asks = tuple(Ask(**ask) for ask in order["asks"])  # type: ignore[arg-type]
        self.plan = LadderPlan(**order["plan"])
        self.rung = Rung(*order["rung"])
        self.share = Share(*order["share"])
        self.over = False
        self.begun = 0
        self.records: list[Recording] = []
        self.untold: list[Ended] = []

    async def run(self) -> None:
        """Send it, and say how it goes; cancelled, it says what has ended until then."""
        cpu_s = time.process_time()
        async with open_session(self.order["timeout_s"], self.endpoint.ca_pem) as session:
            await asyncio.sleep(self.order["begin_s"] - time.perf_counter())
            loop = asyncio.create_task(self._send(session))
            try:
                while not loop.done():
                    await asyncio.wait({loop}, timeout=TELL_EVERY_S)
                    self.say({"kind": "told", "begun": self.begun, "ended": self._told()})
                loop.result()
            except asyncio.CancelledError:
                loop.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await loop
        requests = [raw_request(record, self.endpoint, self.order["begin_s"]) for record in self.records]
        late_s = [one.sent_s - one.due_s for one in self.records if one.sent_s is not None and one.due_s is not None]
        self.say(
            {
                "kind": "done",
                "begun": self.begun,
                "ended": self._told(),
                "requests": requests,
                "late_s": late_s,
                "cpu_s": time.process_time() - cpu_s,
            }
        )

    async def _send(self, session: aiohttp.ClientSession) -> None:
        asks = self._asks()
        if self.plan.load == CLOSED:
            streams = self.share.streams(int(self.rung.level))
            await closed_loop(session, self.endpoint, asks, streams, self._done, self._is_over)
        else:
            gaps = (after - before for before, after in pairwise([0.0, *self.order["due_s"]]))
            await open_loop(session, self.endpoint, asks, gaps, self._done, self._is_over, self.order["begin_s"])

    def _asks(self) -> Iterator[Ask]:
        for ask in self.share.pick(endless(self.asks, self.plan, self.rung)):
            self.begun += 1
            yield ask

    def _is_over(self) -> bool:
        return self.over or time.perf_counter() >= self.order["begin_s"] + self.order["seconds"]

    def _done(self, record: Recording) -> None:
        self.records.append(record)
        well = ended_well(record)
        look = well and self.order["narrow"] and not self._is_over()
        self.untold.append((well, record.ask.prompt_id, quick_tpot(record) if look else None))

    def _told(self) -> list[Ended]:
        ended, self.untold = self.untold, []
        return ended


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def obey(say: Callable[[Said], None]) -> None:
    """Do what the lines of standard input say until they end."""
    orders = asyncio.StreamReader(limit=MOST_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    say({"kind": "hello", "cores": cores_here()})
    part: Part | None = None
    going: asyncio.Task[None] | None = None
    while line := await orders.readline():
        order = json.loads(line)
        if order["do"] == "clock":
            say({"kind": "clock", "clock_s": time.perf_counter()})
        elif order["do"] == "step":
            part = Part(cast("Order", order["step"]), say)
            going = asyncio.create_task(part.run())
        elif order["do"] == "over" and part is not None:
            part.over = True
        elif order["do"] == "give_up" and going is not None:
            going.cancel()
    if going is not None:
        going.cancel()


def main() -> None:
    """Speak with the measuring process; what anything else prints goes to standard error."""
    told = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with open(told, "w", encoding="utf-8") as lines:  # noqa: PTH123 - a descriptor

        def say(said: Said) -> None:
            lines.write(json.dumps(said) + "\n")
            lines.flush()

        with contextlib.suppress(BrokenPipeError):
            asyncio.run(obey(say))


if __name__ == "__main__":
    main()
