"""The client processes among which a load is spread: on this machine, or on several load boxes over SSH.

The client travels: our sources go through the connection, so a load box needs nothing but a Python that has aiohttp and
numpy, such as that of Drafthouse's own environment. Times are never compared between machines: each process reports
durations and times from the common beginning, and only that is told in the clock of each, which is compared first.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shlex
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ...core.box_archive import needed_by
from ...core.errors import DrafthouseError, one_problem
from .client_process import MOST_BYTES, Said, cores_here
from .shares import processes_for

if TYPE_CHECKING:
    from drafthouse.bench.sweep.client_process import Order

#: How well the clocks of two machines must be known, in seconds: by so much their requests could begin apart.
MOST_CLOCK_ERROR_S = 0.02
#: How often a clock is asked; the quickest answer bounds the error best.
_ASKS = 10
#: How long a process may take to start (a login included), to answer, and to end, in seconds.
_START_S, _ANSWER_S, _END_S = 60.0, 10.0, 5.0
_MODULE = f"{__package__}.client_process"
# Over SSH: the sources come first, as so many bytes, then the orders. `-` keeps the reader from taking more than them.
_TRAVELS = """
import os, runpy, sys, tempfile
left, parts = int(sys.argv[1]), []
while left:
    part = os.read(0, left)
    if not part:
        sys.exit("the connection ended early")
    parts.append(part)
    left -= len(part)
with tempfile.TemporaryDirectory(prefix="drafthouse-client-") as folder:
    with open(folder + "/client.zip", "wb") as file:
        file.write(b"".join(parts))
    sys.path.insert(0, folder + "/client.zip")
    runpy.run_module("drafthouse.bench.sweep.client_process", run_name="__main__")
"""


@dataclass(frozen=True)
class Clients:
    """Who puts the load on the server. ``processes`` None: as many as a level needs, at most one a core."""

    processes: int | None = None
    hosts: tuple[str, ...] = ()
    """Load boxes, as `ssh` takes them. Empty: this machine."""
    python: str = "python3"
    """The load boxes' Python."""


ALONE = Clients(processes=1)


class ClientProcess:
    """One client process. ``offset_s`` is its clock less ours, known within ``error_s``."""

    def __init__(self, process: asyncio.subprocess.Process, where: str) -> None:
        self.process, self.where = process, where
        self.offset_s = self.error_s = 0.0
        self.cores = 1

    async def order(self, do: str, step: Order | None = None) -> None:
        """Give an order. Raises DrafthouseError where the process is gone."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "step": step}).encode() + b"\n")
        try:
            await self.process.stdin.drain()
        except ConnectionError:
            raise await self._gone() from None

    async def hear(self) -> Said:
        """Return what it says next. Raises DrafthouseError where it is gone."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise await self._gone()
        return cast("Said", json.loads(line))

    async def answer(self, kind: str, seconds: float) -> Said:
        """Return its next word of a kind; what it says of a step that was given up is passed over."""
        try:
            return await asyncio.wait_for(self._next(kind), seconds)
        except asyncio.TimeoutError:
            raise one_problem(
                "client-process-ended",
                f"the client process on {self.where} did not answer within {seconds:.0f} s",
                "one that answers",
                "check that machine's load, then run the same command again",
            ) from None

    async def _next(self, kind: str) -> Said:
        while (said := await self.hear())["kind"] != kind:
            pass
        return said

    async def compare_clocks(self) -> None:
        """Find out how its clock stands to ours. Raises DrafthouseError where that cannot be known well enough."""
        best_s = float("inf")
        for _ in range(_ASKS):
            before_s = time.perf_counter()
            await self.order("clock")
            clock_s = (await self.answer("clock", _ANSWER_S))["clock_s"]
            took_s = time.perf_counter() - before_s
            if took_s < best_s:
                best_s = took_s
                self.offset_s, self.error_s = clock_s - before_s - took_s / 2, took_s / 2
        if self.error_s > MOST_CLOCK_ERROR_S:
            raise one_problem(
                "load-box-clock",
                f"{self.where} takes {2000 * self.error_s:.0f} ms to answer, so its clock is known within "
                f"{1000 * self.error_s:.0f} ms",
                f"{1000 * MOST_CLOCK_ERROR_S:.0f} ms",
                "start the measurement closer to the load boxes, for example on one of them",
                "--from",
            )

    async def _gone(self) -> DrafthouseError:
        assert self.process.stderr is not None
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.process.wait(), _END_S)
        said = (await self.process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
        return one_problem(
            "client-process-ended",
            f"the client process on {self.where} ended: {said[-1] if said else f'exit {self.process.returncode}'}",
            "one that runs until the end of the measurement",
            "check that machine (its memory, its login, aiohttp and numpy in its Python), then run it again: "
            "finished steps are kept",
        )

    async def close(self) -> None:
        """End it: it goes when its input does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _END_S)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


class ClientPool:
    """The processes; they start when a level first needs them, and end with the ladder."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._running: list[ClientProcess] = []

    async def __aenter__(self) -> ClientPool:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(one.close() for one in self._running))
        self._running.clear()

    async def parts_for(self, load: str, level: float, tokens: float) -> list[ClientProcess]:
        """Return the processes for a level, with their clocks compared; none where this process does it alone.

        ``tokens`` is the mean length of the answers asked for. Raises DrafthouseError.
        """
        hosts = self._clients.hosts
        if hosts:
            await self._start(len(hosts))
        cores = sum(one.cores for one in self._running[: len(hosts)]) if hosts else cores_here()
        number = self._clients.processes or processes_for(load, level, tokens, cores)
        number = max(number, len(hosts))
        if not hosts and number == 1:
            return []
        await self._start(number)
        parts = self._running[:number]
        if hosts:
            await asyncio.gather(*(one.compare_clocks() for one in parts))
        return parts

    async def _start(self, number: int) -> None:
        """Have so many processes, on the hosts in turn. They share our clock where that is this machine."""
        begun = [await self._begin(place) for place in range(len(self._running), number)]
        self._running += begun
        for one, said in zip(
            begun, await asyncio.gather(*(one.answer("hello", _START_S) for one in begun)), strict=True
        ):
            one.cores = said["cores"]

    async def _begin(self, place: int) -> ClientProcess:
        hosts, sources = self._clients.hosts, b""
        environment: Mapping[str, str] = os.environ
        if hosts:
            where, sources = hosts[place % len(hosts)], _packed()
            remote = shlex.join([*shlex.split(self._clients.python), "-c", _TRAVELS, str(len(sources))])
            words = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--", where, remote]
        else:
            where = "this machine"
            words = [sys.executable, "-m", _MODULE]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_BYTES,
            env=environment,
            # Ctrl-C is this process's to pass on: what has ended until then is to be kept.
            start_new_session=True,
        )
        if sources:
            assert process.stdin is not None
            process.stdin.write(sources)
        return ClientProcess(process, where)


def _packed() -> bytes:
    """Return the client's sources, with all that they import, as a zip file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in needed_by(["bench.sweep.client_process"]).items():
            file.writestr(f"drafthouse/{name}", text)
    return packed.getvalue()
