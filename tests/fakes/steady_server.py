"""A server of known clock that is cheap enough for 50,000 chunks a second beside its clients, in a process of its own.

Every chunk is the same bytes, and of what it sent it keeps only by how much each chunk was late: that says whether the
machine itself kept the clock. The rest is `clock_server`.
"""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.fakes.clock_server import Clock, Connection, Running, State, Stream
from tests.fakes.in_process import in_process, options_and_port, serve

_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" w"},"finish_reason":null}]}\n\n'
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)


@dataclass
class Steady(State):
    """What has happened so far: by how much first and further chunks were late, in seconds."""

    first_late_s: array[float] = field(default_factory=lambda: array("d"))
    late_s: array[float] = field(default_factory=lambda: array("d"))


def _lateness(values: array[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    return {
        "n": len(values),
        "median_ms": 1000 * ordered[len(ordered) // 2],
        "p90_ms": 1000 * ordered[len(ordered) * 9 // 10],
    }


class Paced(Connection):
    """One client connection; chunks go to the socket as they are."""

    state: Steady

    def answer(self, path: str, headers: dict[str, str], body: bytes, now: float) -> None:
        if path == "/lateness":
            state = self.state
            document = {"first": _lateness(state.first_late_s), "further": _lateness(state.late_s)}
            document["cpu_s"] = time.process_time()  # type: ignore[assignment]
            return self.send(200, json.dumps(document), "application/json")
        if path == "/reset":
            self.state.first_late_s, self.state.late_s = array("d"), array("d")
        return super().answer(path, headers, body, now)

    def stream(self, request: dict[str, Any], entry: dict[str, Any], number: int, now: float) -> None:
        # Not kept: at this rate a record of all requests would be most of what the process holds.
        entry.clear()
        super().stream(request, entry, number, now)

    def step(self, stream: Stream, number: int) -> None:
        interval_s = self.state.clock.interval_ms / 1000
        late_s = time.perf_counter() - stream.due - number * interval_s
        (self.state.late_s if number else self.state.first_late_s).append(late_s)
        self.write(_CHUNK)
        number += 1
        if number < len(stream.steps):
            self.at(stream.due + number * interval_s, partial(self.step, stream, number))
        else:
            stream.finish()


class SteadyRunning(Running):
    """A steady server that runs."""

    def lateness(self) -> dict[str, Any]:
        """By how much its chunks were late (ms), first ones and further ones, and its CPU seconds."""
        found: dict[str, Any] = self.get("/lateness")
        return found


@contextmanager
def steady_server(**options: Any) -> Iterator[SteadyRunning]:
    """Start a server with these options of `Clock` on a free port of loopback, and stop it at the end."""
    with in_process("tests.fakes.steady_server", {"tokens_per_chunk": 1, **options}) as (base_url, pid):
        yield SteadyRunning(base_url, pid)


def main() -> None:
    """Read the options, and serve."""
    clock, port = options_and_port(Clock, __doc__)
    state = Steady(clock)
    asyncio.run(serve(lambda: Paced(state), port))


if __name__ == "__main__":
    main()
