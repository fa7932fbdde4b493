"""A server whose speed hangs on its load by a known law, in a process of its own.

Its time per token is ``fixed_ms + each_ms * (requests under way)``, so that two of them, one as the baseline and one
as the speculative arm, cross at a load that can be worked out (`known_crossover`). It counts its work as vLLM does
(requests, tokens in and out, what is under way), with drafts where it is told to draft. The rest is `clock_server`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.fakes.clock_server import Clock, Connection, Running, State, Stream
from tests.fakes.in_process import in_process, options_and_port, serve

#: What every prompt has, as the usage of `clock_server` says it.
PROMPT_TOKENS = 11


@dataclass(frozen=True)
class Law(Clock):
    """What the server does; ``interval_ms`` of the clock is not used."""

    tokens_per_chunk: int = 1
    metrics: str = "vllm"
    fixed_ms: float = 5.0
    each_ms: float = 0.1
    noise: float = 0.0  # standard deviation of the logarithm of a request's own factor
    drift: float = 0.0  # share by which it gets slower in drift_s seconds, and stays
    drift_s: float = 60.0
    seed: int = 0

    def tpot_ms(self, running: int, age_s: float) -> float:
        """The time per token with so many requests under way, ``age_s`` seconds after the start."""
        drifted = 1 + self.drift * min(1.0, age_s / self.drift_s)
        return (self.fixed_ms + self.each_ms * running) * drifted


def known_crossover(baseline: Law, speculative: Law, threshold: float) -> float:
    """The load at which baseline / speculative is ``threshold``: two straight lines, one equation."""
    return (baseline.fixed_ms - threshold * speculative.fixed_ms) / (threshold * speculative.each_ms - baseline.each_ms)


@dataclass
class Work(State):
    """What has happened so far."""

    law: Law = Law()
    born_s: float = 0.0
    born_unix_s: float = field(default_factory=time.time)
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0

    def metrics(self) -> str:
        """The counters: those of speculation, and vLLM's of its work."""
        labels = '{engine="0",model_name="clock"}'
        finished = '{engine="0",finished_reason="length",model_name="clock"}'
        lines = [
            f"vllm:num_requests_running{labels} {float(self.running)}",
            f"vllm:num_requests_waiting{labels} 0.0",
            f"vllm:prompt_tokens_total{labels} {float(self.prompt_tokens)}",
            f"vllm:generation_tokens_total{labels} {float(self.output_tokens)}",
            f"vllm:request_success_total{finished} {float(self.requests)}",
            f"process_start_time_seconds {self.born_unix_s}",
        ]
        return super().metrics() + "\n".join(lines) + "\n"


class Loaded(Connection):
    """One client connection; its stream goes at the speed of the moment."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.work = work
        self.factor = 1.0

    def chat(self, request: dict[str, Any], headers: dict[str, str], now: float) -> None:
        law = self.work.law
        chance = random.Random(f"{law.seed} {len(self.work.record)}")
        self.factor = chance.lognormvariate(0.0, law.noise)
        super().chat(request, headers, now)

    def step(self, stream: Stream, number: int) -> None:
        self.go_on(stream, number, stream.due)

    def go_on(self, stream: Stream, number: int, due: float) -> None:
        """Send one chunk, and set the time of the next by what is under way now."""
        work = self.work
        if number < len(stream.steps):
            if number == 0:
                work.prompt_tokens += PROMPT_TOKENS
            work.output_tokens += stream.steps[number]
            self.tokens(stream.entry, number * work.law.tokens_per_chunk, stream.steps[number], stream.total)
            number += 1
        if number < len(stream.steps):
            each_ms = work.law.tpot_ms(work.running, time.perf_counter() - work.born_s) * self.factor
            due += stream.steps[number] * each_ms / 1000
            self.at(due, partial(self.go_on, stream, number, due))
        else:
            work.requests += 1
            stream.finish()


@contextmanager
def crossover_server(**options: Any) -> Iterator[Running]:
    """Start a server with these options of `Law` on a free port of loopback, and stop it at the end."""
    with in_process("tests.fakes.crossover_server", options) as (base_url, pid):
        yield Running(base_url, pid)


def main() -> None:
    """Read the options, and serve."""
    law, port = options_and_port(Law, __doc__)
    work = Work(law, law=law, born_s=time.perf_counter())
    asyncio.run(serve(lambda: Loaded(work), port))


if __name__ == "__main__":
    main()
