"""Put one level of load on one server, until what is measured is sharp enough or the time is up.

While it runs, of each answer only its head and its end are read, for the time per token that decides when to stop:
a millisecond of reading here would be a millisecond in the clock of every other stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import numpy as np

from ...bench.client import Ask, Endpoint, Recording, closed_loop, open_loop, raw_request
from ...bench.samples import time_per_token
from ...bench.sse import Answer, read_answer, split_events
from ...prompts.load_levels import CLOSED
from .stats import is_narrow, noise_interval

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request

#: How often it is looked whether the step is over, in seconds.
LOOK_EVERY_S = 0.5
#: So many requests that fail one after the other end a step: it would only send more of them.
IN_A_ROW = 8
#: So many requests at once in an open loop mean a server that does not keep up.
MOST_RUNNING = 1024
#: Characters at both ends of an answer that are read while others run.
PIECE = 4096
_LOOK_RESAMPLES = 400
_GAPS_AT_ONCE = 256
# What ends an event of a stream.
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")

NARROW, TIME, PROMPTS, DIED, FAILED_IN_A_ROW, OVERLOAD, STOPPED = (
    "narrow", "time", "prompts", "died", "failed", "overload", "stopped",
)  # fmt: skip


@dataclass(frozen=True)
class LoadOptions:
    """One level: ``level`` requests at a time (closed) or begun in a second (open)."""

    load: str
    level: float
    prompts: int
    """How many distinct prompts there are: sharp is only what has asked each of them twice."""
    seconds: float
    narrow: float | None
    """Half the width of the interval, as a share of the median, at which the step ends; None: by time alone."""
    drain_s: float = 60.0
    """How long answers may still run after the end; then they are given up."""
    seed: int = 0


def arrivals(rate: float, seed: int) -> Iterator[float]:
    """The gaps between requests that come at random, ``rate`` a second (a Poisson process), in seconds."""
    random = np.random.default_rng(seed)
    while True:
        yield from random.exponential(1.0 / rate, _GAPS_AT_ONCE).tolist()


class LoadRun:
    """One level of load while it is put on a server. What it holds is of use also when it was stopped.

    Times are seconds of ``time.perf_counter``, so a clock that is set does not matter.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        asks: Iterable[Ask],
        options: LoadOptions,
        on_done: Callable[[bool], None] = lambda well: None,
    ) -> None:
        """``on_done`` is told of each request as it ends, whether well: it runs between the streams."""
        self.records: list[Recording] = []
        self.begun = self.ended = self.lost = 0
        self.began_s = self.full_until_s = time.perf_counter()
        self.ended_by = STOPPED
        self._over = False
        self._endpoint, self._given, self._options, self._on_done = endpoint, asks, options, on_done
        self._in_a_row = self._looked_at = self._narrow_looks = 0
        self._tpots: dict[str, list[float]] = {}

    @property
    def unfinished(self) -> int:
        """Requests that were begun and given up before they ended."""
        return self.begun - self.ended

    @property
    def window(self) -> tuple[float, float]:
        """The time of full load, in seconds from the beginning."""
        return 0.0, self.full_until_s - self.began_s

    def late_s(self) -> list[float]:
        """By how much each request of an open loop was sent later than it was due."""
        return [r.sent_s - r.due_s for r in self.records if r.sent_s is not None and r.due_s is not None]

    def requests(self) -> list[Request]:
        """What happened in each request."""
        return [raw_request(record, self._endpoint, self.began_s) for record in self.records]

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Send requests until the step is over, and wait for their answers. Cancelling it leaves what is done."""
        self.began_s = self.full_until_s = time.perf_counter()
        loop = asyncio.create_task(self._loop(session))
        try:
            while not loop.done():
                await asyncio.wait({loop}, timeout=LOOK_EVERY_S)
                await self._look()
                if self.is_over() and time.perf_counter() > self.full_until_s + self._options.drain_s:
                    break
            if loop.done():
                loop.result()
        finally:
            self._end(STOPPED)
            if not loop.done():
                loop.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await loop

    async def _loop(self, session: aiohttp.ClientSession) -> None:
        options = self._options
        if options.load == CLOSED:
            await closed_loop(session, self._endpoint, self._asks(), int(options.level), self._done, self.is_over)
        else:
            gaps = arrivals(options.level, options.seed)
            await open_loop(session, self._endpoint, self._asks(), gaps, self._done, self.is_over)

    def _asks(self) -> Iterator[Ask]:
        for ask in self._given:
            self.begun += 1
            yield ask
        self._end(PROMPTS)

    def is_over(self) -> bool:
        """Whether no further request may begin."""
        if not self._over and (reason := self._reason()):
            self._end(reason)
        return self._over

    def _reason(self) -> str | None:
        if self._in_a_row >= IN_A_ROW:
            return FAILED_IN_A_ROW
        if time.perf_counter() - self.began_s >= self._options.seconds:
            return TIME
        if self._narrow_looks >= 2:
            return NARROW
        if self._options.load != CLOSED and self.unfinished >= MOST_RUNNING:
            return OVERLOAD
        return None

    def _end(self, reason: str) -> None:
        if not self._over:
            self._over, self.ended_by, self.full_until_s = True, reason, time.perf_counter()

    def _done(self, record: Recording) -> None:
        self.records.append(record)
        well = ended_well(record)
        self.ended += 1
        self.lost += not well
        self._in_a_row = 0 if well else self._in_a_row + 1
        if well and self._options.narrow is not None and not self._over:
            tpot = quick_tpot(record)
            if tpot is not None:
                self._tpots.setdefault(record.ask.prompt_id, []).append(tpot)
        self._on_done(well)

    async def _look(self) -> None:
        """Find out whether it is sharp enough: at two looks one after the other, as one may be so by chance."""
        if self._options.narrow is None or self._over or self._looked_at == self.ended:
            return
        self._looked_at = self.ended
        if len(self._tpots) < self._options.prompts or min(map(len, self._tpots.values())) < 2:
            return
        known = {prompt: list(values) for prompt, values in self._tpots.items()}
        # In a thread: numpy lets the streams go on meanwhile.
        interval = await asyncio.to_thread(noise_interval, known, _LOOK_RESAMPLES)
        self._narrow_looks += 1
        if not is_narrow(interval, self._options.narrow):
            self._narrow_looks = 0


def ended_well(record: Recording) -> bool:
    """Whether an answer came to its end; what it says is read later."""
    return record.http_status == 200 and record.whole


def quick_tpot(record: Recording) -> float | None:
    """The time per output token (ms) as `client.raw_request` does, from both ends of the answer alone.

    None where the ends do not tell it: such a request only does not count towards the end of the step.
    """
    long = len(record.body) > 2 * PIECE
    if long:
        head, tail = _both_ends(record)
    else:
        head = tail = read_answer(split_events(bytes(record.body), record.times_s, record.ends))
    if not head.token_times_s or not tail.token_times_s:
        return None
    first_s, last_s = head.token_times_s[0], tail.token_times_s[-1]
    times_s = tail.token_times_s
    if long:
        # Every read and not every chunk with tokens: what is between the ends is not parsed here.
        times_s = [time_s for time_s in record.times_s if first_s <= time_s <= last_s]
    gaps_ms = [(after - before) * 1000 for before, after in itertools.pairwise(times_s)]
    return time_per_token(first_s * 1000, last_s * 1000, tail.output_tokens, gaps_ms)


def _both_ends(record: Recording) -> tuple[Answer, Answer]:
    """What the first and the last `PIECE` characters of an answer say."""
    first = _whole_events(bytes(record.body[:PIECE]))
    head = read_answer(split_events(first, record.times_s, record.ends))
    start = _after_blank_line(record.body, len(record.body) - PIECE)
    place = bisect_right(record.ends, start)
    ends = [end - start for end in itertools.islice(record.ends, place, None)]
    return head, read_answer(split_events(bytes(record.body[start:]), record.times_s[place:], ends))


def _whole_events(piece: bytes) -> bytes:
    """The events of ``piece`` that are complete."""
    end = 0
    for mark in _BLANK_LINES:
        place = piece.rfind(mark)
        if place >= 0:
            end = max(end, place + len(mark))
    return piece[:end]


def _after_blank_line(body: bytearray, start: int) -> int:
    """Where the first event begins that begins behind ``start``; the end of ``body`` where none does."""
    first = len(body)
    for mark in _BLANK_LINES:
        place = body.find(mark, start)
        if place >= 0:
            first = min(first, place + len(mark))
    return first
