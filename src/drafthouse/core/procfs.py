"""What /proc tells of processes, of who listens, and of the machine's start; and its clocks.

Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FIRST_PROCESS = Path("/proc/1/environ")
# The state of a socket that listens, in the kernel's tables (proc_net_tcp in its documentation).
_LISTEN = "0A"


def boot_id() -> str:
    """Which start of the machine this is; containers of one machine have the same. Raises OSError elsewhere."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@dataclass(frozen=True)
class Clocks:
    """A machine's clocks at one moment: wall, seconds since its start (sleep included), and which start that was."""

    wall: float
    up: float
    boot: str


def clocks() -> Clocks:
    """The clocks of this machine; where the system does not tell its starts apart, ``boot`` is ''."""
    try:
        boot = boot_id()
    except OSError:  # no Linux: a controller
        boot = ""
    counted = getattr(time, "CLOCK_BOOTTIME", None)
    return Clocks(time.time(), time.monotonic() if counted is None else time.clock_gettime(counted), boot)


def commands() -> Iterator[tuple[int, list[str]]]:
    """Yield the pid and the words of every process that has a command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        if words := command_of(int(folder.name)):
            yield int(folder.name), words


def command_of(pid: int) -> list[str]:
    """The words that a process was started with; [] for one that has ended, and for the kernel's own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words[:-1]]


def open_files(process: Path) -> set[str]:
    """What a process (its folder in /proc) has open; nothing of another user's, or of one that just ended."""
    held = set()
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed since it was listed
                held.add(str(link.readlink()))
    return held


def first_environment(file: Path = FIRST_PROCESS) -> dict[str, str]:
    """Everything that the first process was started with, secrets too: keep it in memory.

    {} where it may not be read: another user's, or a system without /proc.
    """
    try:
        entries = file.read_bytes().split(b"\0")
    except OSError:
        return {}
    environment = {}
    for entry in entries:
        name, equals, value = entry.decode(errors="replace").partition("=")
        if equals:
            environment[name] = value
    return environment


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has waited for yet has."""
    state = _stat(pid)
    return not state or state[0] == "Z"


def state_of(pid: int) -> str | None:
    """The letter of a process's state (proc(5): R, S, D, T, t, Z, ...), None where it has ended."""
    state = _stat(pid)
    return state[0] if state else None


def start_of(pid: int) -> str | None:
    """The start of a process, in the kernel's ticks; None where the process has ended."""
    state = _stat(pid)
    return state[19] if state and state[0] != "Z" else None


def age_of(pid: int) -> float | None:
    """How long ago a process was started, in seconds; no clock that can be set has a part in it."""
    state = _stat(pid)
    if not state:
        return None
    started_s = int(state[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5), since the machine's start
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent, None where the process has ended."""
    state = _stat(pid)
    return int(state[1]) if state else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything; [] where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def listeners(proc: Path = Path("/proc")) -> Iterator[tuple[str, int, str]]:
    """Yield each listener's address (its digits), port and socket as `/proc/PID/fd` names it; IPv4 and IPv6."""
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3:4] == [_LISTEN]:
                address, _, port = columns[1].rpartition(":")
                yield address, int(port, 16), f"socket:[{''.join(columns[9:10])}]"
