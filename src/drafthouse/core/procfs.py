"""Read /proc: processes, listening sockets, the boot id and PID 1's environment; and the machine's clocks.

Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FIRST_PROCESS = Path("/proc/1/environ")  # PID 1's environment
# The state of a listening socket (TCP_LISTEN) in /proc/net/tcp, in hexadecimal digits.
_LISTEN = "0A"
_START_TIME = 19  # index in `_stat`: field 22 of proc(5), in clock ticks since boot


def boot_id() -> str:
    """The random id of the machine's current boot, the same in its containers. Raises OSError without Linux."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@dataclass(frozen=True)
class Clocks:
    """One reading of a machine's clocks."""

    wall: float  # unix seconds; somebody may set this clock
    up: float  # seconds since the machine's boot, suspend included
    boot: str  # id of that boot; '' if unknown


def clocks() -> Clocks:
    """The clocks of this machine now; without Linux ``boot`` is '' and ``up`` counts from an unknown moment."""
    try:
        boot = boot_id()
    except OSError:  # not Linux: a controller may run macOS
        boot = ""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    up_s = time.monotonic() if boot_clock is None else time.clock_gettime(boot_clock)
    return Clocks(wall=time.time(), up=up_s, boot=boot)


def commands() -> Iterator[tuple[int, list[str]]]:
    """Yield the pid and the command line, as words, of every process that has one."""
    for folder in Path("/proc").glob("[0-9]*"):
        if words := command_of(int(folder.name)):
            yield int(folder.name), words


def command_of(pid: int) -> list[str]:
    """The command line of a process as words; [] for a process that has ended, and for a kernel thread."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in words[:-1]]


def open_files(process: Path) -> set[str]:
    """The open files and sockets of a process (its folder in /proc); empty for another user's or an ended one."""
    targets = set()
    with contextlib.suppress(OSError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed since it was listed
                targets.add(str(link.readlink()))
    return targets


def first_environment(file: Path = FIRST_PROCESS) -> dict[str, str]:
    """The environment of PID 1. It contains secrets, so it must not be written anywhere.

    {} where it cannot be read: PID 1 is another user's, or the system has no /proc.
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
    """True if a process has ended, even if its parent has not waited for it yet (a zombie, state Z)."""
    fields = _stat(pid)
    return not fields or fields[0] == "Z"


def state_of(pid: int) -> str | None:
    """The letter of a process's state (proc(5): R, S, D, T, t, Z, ...); None where it has ended."""
    fields = _stat(pid)
    return fields[0] if fields else None


def start_of(pid: int) -> str | None:
    """The start time of a process in clock ticks since boot; None where it has ended. With the pid it is unique."""
    fields = _stat(pid)
    return fields[_START_TIME] if fields and fields[0] != "Z" else None


def age_of(pid: int) -> float | None:
    """The seconds since a process started, by a clock that nobody can set; None where it has ended."""
    fields = _stat(pid)
    if not fields:
        return None
    started_s = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def parent_of(pid: int) -> int | None:
    """The pid of a process's parent; None where the process has ended."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; [] where the process has ended.

    The second, the program's name in parentheses, may itself have blanks and parentheses.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def listeners(proc: Path = Path("/proc")) -> Iterator[tuple[str, int, str]]:
    """Yield address (hexadecimal digits), port, and socket (as `/proc/PID/fd` names it) of each TCP listener."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()  # number, local address, remote address, state, ..., inode (10th)
            if columns[3:4] == [_LISTEN]:
                address, _, port = columns[1].rpartition(":")
                yield address, int(port, 16), f"socket:[{''.join(columns[9:10])}]"
