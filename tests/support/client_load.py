"""Our client under load: pinned to one core, with what it used, against a server of known clock."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafthouse.profiles.workspace import ROOT
from tests.fakes.clock_server import Running, clock_server

#: What the server does: the first token after so long, then one each interval.
TTFT_MS, INTERVAL_MS = 500.0, 20.0


@dataclass(frozen=True)
class Load:
    """So many requests of so many tokens, so many at a time."""

    streams: int
    requests: int
    tokens: int


@dataclass(frozen=True)
class Used:
    """What a process used until its end, the processes that it waited for included."""

    cpu_s: float
    memory_mb: float


def two_cores() -> tuple[int, int] | None:
    """A core for the server and one for the client, or None where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[-1]) if len(cores) > 1 else None


@contextmanager
def known_clock(load: Load, core: int) -> Iterator[Running]:
    """Run the server for a load on a core of its own."""
    with clock_server(ttft_ms=TTFT_MS, interval_ms=INTERVAL_MS, tokens_per_chunk=1, tokens=load.tokens) as server:
        os.sched_setaffinity(server.pid, {core})
        yield server


def pinned(words: Sequence[str], core: int, timeout_s: float = 300.0) -> Used:
    """Run a command on one core until it ends well, and return what it used.

    Of this process alone: what the kernel says of all children together would hold the server's as well.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        deadline, memory_mb = time.monotonic() + timeout_s, 0.0
        while True:
            memory_mb = peak_mb(process.pid) or memory_mb
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise AssertionError(f"not done after {timeout_s:.0f} s: {' '.join(words)}")
            time.sleep(0.05)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        assert process.returncode == 0, output.read()[-3000:]
    return Used(usage.ru_utime + usage.ru_stime, memory_mb)


def peak_mb(pid: int) -> float:
    """The most memory (MB) that a process has held, 0 where it is gone.

    Not ru_maxrss: that one begins with what the tests' own process held when it forked.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0.0
    # In KiB; a process that has just ended has none.
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def ours(base_url: str, load: Load, folder: Path, core: int) -> tuple[dict[str, Any], Used]:
    """Measure with `drafthouse bench`, as a user runs it; return its result and what it used."""
    lines = [
        json.dumps({"messages": [{"role": "user", "content": f"Tell me about the number {number}."}]})
        for number in range(load.requests)
    ]
    suite, out = folder / "many.jsonl", folder / "ours.json"
    suite.write_text("\n".join(lines) + "\n", "utf-8")
    used = pinned(
        [
            sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench", "--base-url", base_url, "--model", "clock",
            "--suite", str(suite), "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams),
            "--output-tokens", str(load.tokens), "--num-warmups", "0", "--result", str(out),
        ],
        core,
    )  # fmt: skip
    data: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return data, used


def off(read: float, true: float) -> float:
    """The relative error in percent."""
    return 100 * abs(read - true) / true


def told(name: str, result: dict[str, Any], used: Used) -> str:
    """The client's figures as a line."""
    return (
        f"{name}: TTFT {result['median_ttft_ms']:.1f} ms (500), TPOT {result['median_tpot_ms']:.3f} ms (20), "
        f"{used.cpu_s:.1f} CPU s, {used.memory_mb:.0f} MB"
    )
