"""Run one load level against one server until its TPOT is known precisely enough or the time is up.

While requests run, only the beginning and the end of an answer are parsed, for the TPOT that decides when to stop. One
millisecond of parsing would delay the arrival times of all other streams by a millisecond.
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

from ...bench.client import ChatRequest, Endpoint, Recording, closed_loop, open_loop, raw_request
from ...bench.samples import time_per_token
from ...bench.sse import Answer, read_answer, split_events
from ...prompts.load_levels import CLOSED
from .stats import is_narrow, noise_interval

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request

#: Interval of the checks whether the step is over, in seconds.
LOOK_EVERY_S = 0.5
#: This many failed requests in a row end a step, because the next ones would fail too.
IN_A_ROW = 8
#: This many running requests in an open loop end a step: the server does not keep up.
MOST_RUNNING = 1024
#: Bytes at each end of an answer that are parsed while other requests run.
PIECE = 4096
# Resamples of the interval in a check; fewer than for the final interval, because a check must be fast.
_CHECK_RESAMPLES = 400
# Gaps between requests that are drawn in one call of numpy.
_GAPS_AT_ONCE = 256
# The ends of a server-sent event.
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")

# The values of ``ended_by``: why no further request was sent. `text.ENDED` has them in words.
NARROW = "narrow"
TIME = "time"
PROMPTS = "prompts"
DIED = "died"
FAILED_IN_A_ROW = "failed"
OVERLOAD = "overload"
STOPPED = "stopped"


@dataclass(frozen=True)
class LoadOptions:
    """A load level: ``load`` "closed" keeps ``level`` requests running, "open" starts ``level`` requests per second."""

    load: str
    level: float
    prompts: int  # number of distinct prompts; each must be answered twice before the step can end as precise enough
    seconds: float  # the longest time in which requests are started
    narrow: float | None  # half the TPOT interval's width over the median at which the step ends; None: at no width
    drain_s: float = 60.0  # that running requests have after the end of the step; then they are cancelled
    seed: int = 0  # of the random gaps between the requests of an open loop


def arrivals(rate: float, seed: int) -> Iterator[float]:
    """Random gaps in seconds between requests of a Poisson process with ``rate`` requests per second; endless."""
    random = np.random.default_rng(seed)
    while True:
        yield from random.exponential(1.0 / rate, _GAPS_AT_ONCE).tolist()


class LoadRun:
    """A run of one load level. Its recordings are valid even if it was stopped early.

    Times are seconds of ``time.perf_counter``, which does not jump when the wall clock is set.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        requests: Iterable[ChatRequest],
        options: LoadOptions,
        on_done: Callable[[bool], None] = lambda complete: None,
    ) -> None:
        """``on_done`` gets True for each complete answer, False for a failed one. It delays streams if it is slow."""
        self.records: list[Recording] = []
        self.begun = 0  # started requests
        self.ended = 0  # ended requests
        self.lost = 0  # of the ended ones, those that failed
        self.began_s = self.full_until_s = time.perf_counter()  # full load ends when no further request may start
        self.ended_by = STOPPED
        self._over = False
        self._endpoint = endpoint
        self._given_requests = requests
        self._options = options
        self._on_done = on_done
        self._failed_in_a_row = 0
        self._checked_at = 0  # the number of ended requests at the last check of the precision
        self._narrow_checks = 0  # in a row
        self._tpots: dict[str, list[float]] = {}  # in ms, by prompt id

    @property
    def unfinished(self) -> int:
        """The number of started requests that have not ended."""
        return self.begun - self.ended

    @property
    def window(self) -> tuple[float, float]:
        """Begin and end of the time of full load, in seconds since the beginning of the run."""
        return 0.0, self.full_until_s - self.began_s

    def late_s(self) -> list[float]:
        """The delay of each request of an open loop: the seconds between its due time and its sending."""
        return [r.sent_s - r.due_s for r in self.records if r.sent_s is not None and r.due_s is not None]

    def requests(self) -> list[Request]:
        """The ended requests with their measurements."""
        return [raw_request(record, self._endpoint, self.began_s) for record in self.records]

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Send requests until the step is over, and wait for their answers. A cancelled run keeps its recordings."""
        self.began_s = self.full_until_s = time.perf_counter()
        loop = asyncio.create_task(self._send_all(session))
        try:
            while not loop.done():
                await asyncio.wait({loop}, timeout=LOOK_EVERY_S)
                await self._check_precision()
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

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        """Send the requests in a closed or an open loop, until the step is over and all have ended."""
        options = self._options
        if options.load == CLOSED:
            await closed_loop(
                session, self._endpoint, self._requests(), int(options.level), self._note_ended, self.is_over
            )
        else:
            gaps = arrivals(options.level, options.seed)
            await open_loop(session, self._endpoint, self._requests(), gaps, self._note_ended, self.is_over)

    def _requests(self) -> Iterator[ChatRequest]:
        """Yield the requests, counting each as started; the step ends when there are no more."""
        for request in self._given_requests:
            self.begun += 1
            yield request
        self._end(PROMPTS)

    def is_over(self) -> bool:
        """True if no further request may start."""
        if not self._over and (reason := self._end_reason()):
            self._end(reason)
        return self._over

    def _end_reason(self) -> str | None:
        """The first reason to start no further request; None: there is none."""
        if self._failed_in_a_row >= IN_A_ROW:
            return FAILED_IN_A_ROW
        if time.perf_counter() - self.began_s >= self._options.seconds:
            return TIME
        if self._narrow_checks >= 2:
            return NARROW
        if self._options.load != CLOSED and self.unfinished >= MOST_RUNNING:
            return OVERLOAD
        return None

    def _end(self, reason: str) -> None:
        """End the time of full load, unless it has ended: the first reason stays."""
        if not self._over:
            self._over = True
            self.ended_by = reason
            self.full_until_s = time.perf_counter()

    def _note_ended(self, record: Recording) -> None:
        """Count a request that ended, and keep its TPOT while the precision is checked."""
        self.records.append(record)
        complete = ended_well(record)
        self.ended += 1
        self.lost += not complete
        self._failed_in_a_row = 0 if complete else self._failed_in_a_row + 1
        if complete and self._options.narrow is not None and not self._over:
            tpot = quick_tpot(record)
            if tpot is not None:
                self._tpots.setdefault(record.request.prompt_id, []).append(tpot)
        self._on_done(complete)

    async def _check_precision(self) -> None:
        """Count consecutive checks at which the interval is narrow enough; two end the step, one may be by chance."""
        if self._options.narrow is None or self._over or self._checked_at == self.ended:  # nothing new since the last
            return
        self._checked_at = self.ended
        if len(self._tpots) < self._options.prompts or min(map(len, self._tpots.values())) < 2:
            return
        tpots = {prompt: list(values) for prompt, values in self._tpots.items()}
        # numpy releases the GIL, so in a thread it does not delay the streams.
        interval = await asyncio.to_thread(noise_interval, tpots, _CHECK_RESAMPLES)
        self._narrow_checks += 1
        if not is_narrow(interval, self._options.narrow):
            self._narrow_checks = 0


def ended_well(record: Recording) -> bool:
    """True if the answer is complete. Its content is parsed later, and may still be an error."""
    return record.http_status == 200 and record.whole


def quick_tpot(record: Recording) -> float | None:
    """TPOT in ms, as `raw_request` computes it, but from only the two ends of a long answer (see `PIECE`).

    None if it cannot be read from them; the request then does not count for the end of the step.
    """
    long = len(record.body) > 2 * PIECE
    if long:
        beginning, ending = _both_ends(record)
    else:
        beginning = ending = read_answer(split_events(bytes(record.body), record.times_s, record.ends))
    if not beginning.token_times_s or not ending.token_times_s:
        return None
    first_s, last_s = beginning.token_times_s[0], ending.token_times_s[-1]
    times_s = ending.token_times_s
    if long:
        # The middle is not parsed, so each read from the socket stands for a chunk with tokens.
        times_s = [time_s for time_s in record.times_s if first_s <= time_s <= last_s]
    gaps_ms = [(after - before) * 1000 for before, after in itertools.pairwise(times_s)]
    return time_per_token(first_s * 1000, last_s * 1000, ending.output_tokens, gaps_ms)


def _both_ends(record: Recording) -> tuple[Answer, Answer]:
    """The answers parsed from the first and from the last `PIECE` bytes of a long answer."""
    first = _whole_events(bytes(record.body[:PIECE]))
    beginning = read_answer(split_events(first, record.times_s, record.ends))
    start = _after_blank_line(record.body, len(record.body) - PIECE)
    index = bisect_right(record.ends, start)  # the index of the first read that reached beyond ``start``
    ends = [end - start for end in itertools.islice(record.ends, index, None)]
    return beginning, read_answer(split_events(bytes(record.body[start:]), record.times_s[index:], ends))


def _whole_events(piece: bytes) -> bytes:
    """``piece`` up to the end of its last complete event."""
    end = 0
    for blank_line in _BLANK_LINES:
        offset = piece.rfind(blank_line)
        if offset >= 0:
            end = max(end, offset + len(blank_line))
    return piece[:end]


def _after_blank_line(body: bytearray, start: int) -> int:
    """The offset at which the first event after ``start`` begins; the length of ``body`` if there is none."""
    first = len(body)
    for blank_line in _BLANK_LINES:
        offset = body.find(blank_line, start)
        if offset >= 0:
            first = min(first, offset + len(blank_line))
    return first
