"""Was it the kernel's out-of-memory killer that ended an engine? Its counters before and after, and the kernel's log.

Counted are kills of the whole machine (`oom_kill` in /proc/vmstat) and of the control group that the engine lived in
(`oom_kill` in memory.events of cgroup v2, in memory.oom_control of v1: Linux 4.13 and newer). The kernel's log names
the processes; reading it needs root, or kernel.dmesg_restrict = 0. Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ..core.files import text_in

MIB = 1024**2
#: What to do about it.
DO = (
    "give the engine more memory (the limit of its container or control group, or a larger box), or reduce its needs: "
    "a shorter context, fewer concurrent requests, a smaller draft"
)
# The log's clock (local_clock) and CLOCK_MONOTONIC may be so far apart, in seconds.
_SLACK_S = 5.0
_KILLED = re.compile(
    r"Killed process (?P<pid>\d+) \((?P<name>[^)]*)\).*?anon-rss:(?P<anon>\d+)kB", re.IGNORECASE | re.DOTALL
)
_SIGNAL = re.compile(r"SIGKILL|signal 9\b|exit status 137\b")
_DOCKERS_WORD = "OOMKilled"
_MOST_LINES = 3


@dataclass(frozen=True)
class Kills:
    """What the kernel had counted at a moment (``at_s``: CLOCK_MONOTONIC, seconds); None where it cannot be read."""

    at_s: float
    machine: int | None
    group: int | None
    folder: Path | None
    """The control group's."""

    @property
    def known(self) -> bool:
        """Whether anything is counted at all."""
        return self.machine is not None or self.group is not None


def read_kills(pid: int | None, root: Path = Path("/")) -> Kills:
    """The counters now, the group's for the process ``pid``. Never raises."""
    folder = None
    if pid:
        folder = _group_of(pid, root)
    return Kills(time.monotonic(), _counted(root / "proc/vmstat"), _group_kills(folder), folder)


def why_it_died(ending: str, before: Kills | None, root: Path = Path("/")) -> str:
    """How an engine ended, in words, with what the kernel says of it.

    ``ending`` is what the supervisor or the container engine says, ``before`` the counters while the engine lived.
    """
    oom_by_docker = _DOCKERS_WORD in ending
    killed = oom_by_docker or bool(_SIGNAL.search(ending))
    if before is None and killed:
        return f"{ending}, likely by the kernel's out-of-memory killer (see dmesg)"
    if before is None:
        return ending
    machine = _rise(before.machine, _counted(root / "proc/vmstat"))
    group = _rise(before.group, _group_kills(before.folder))
    if machine or group or oom_by_docker:
        evidence = "; ".join([_counts(machine, group), *_limit(before.folder), *_log(before.at_s, root), _free(root)])
        if not killed:
            return f"{ending}, after the kernel's out-of-memory killer had ended a process ({evidence})"
        if group or oom_by_docker:
            return f"{ending}, by the kernel's out-of-memory killer ({evidence})"
        return f"{ending}, very likely by the kernel's out-of-memory killer ({evidence})"
    if killed and before.known:
        return (
            f"{ending}; the kernel's out-of-memory killer has not struck, so a user or another program sent that signal"
        )
    if killed:
        return f"{ending}, likely by the kernel's out-of-memory killer, whose counters cannot be read here"
    return ending


def is_out_of_memory(why: str) -> bool:
    """Tell whether words of `why_it_died` name the out-of-memory killer as the reason."""
    return "the kernel's out-of-memory killer" in why and "has not struck" not in why


def _counts(machine: int | None, group: int | None) -> str:
    parts = []
    if group:
        parts.append(f"oom_kill of its group rose by {group}")
    if machine:
        parts.append(f"oom_kill of the machine rose by {machine}")
    return " and ".join(parts) or "the container engine says OOMKilled"


def _rise(before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return None
    return max(0, after - before)


def _counted(path: Path, name: str = "oom_kill") -> int | None:
    for line in text_in(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _group_of(pid: int, root: Path) -> Path | None:
    """The folder of a process's memory control group; None where it has none that can be seen."""
    for line in text_in(root / f"proc/{pid}/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        top = root / "sys/fs/cgroup"
        if "memory" in controllers.split(","):
            top /= "memory"
        elif number != "0" or not (top / "cgroup.controllers").exists():
            continue
        # In a container the path may be the host's, and what is mounted the container's own group.
        for folder in (top / path.lstrip("/"), top):
            if _group_kills(folder) is not None:
                return folder
    return None


def _group_kills(folder: Path | None) -> int | None:
    if folder is None:
        return None
    version_2 = _counted(folder / "memory.events")
    if version_2 is not None:
        return version_2
    return _counted(folder / "memory.oom_control")


def _limit(folder: Path | None) -> list[str]:
    """The group's limit and its highest use, where it has a limit."""
    while folder is not None and folder.name not in ("", "cgroup"):
        limit = _number(folder, "memory.max", "memory.limit_in_bytes")
        # v1 writes the highest multiple of a page for no limit.
        if limit is not None and limit < 1 << 60:
            text = f"its group's limit is {limit / MIB:,.0f} MiB"
            peak = _number(folder, "memory.peak", "memory.max_usage_in_bytes")
            if peak is not None:
                text += f", its peak use {peak / MIB:,.0f} MiB"
            return [text]
        folder = folder.parent
    return []


def _number(folder: Path, *names: str) -> int | None:
    """The number in the first of the files that holds any text; None where that is no number."""
    for name in names:
        text = text_in(folder / name).strip()
        if text.isdigit():
            return int(text)
        if text:
            return None
    return None


def _log(since_s: float, root: Path) -> list[str]:
    """Whom the kernel's log names since a moment, the last few; nothing where it cannot be read."""
    lines = []
    try:
        kmsg = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        # One record a read (Documentation/ABI/testing/dev-kmsg): "priority,number,microseconds,flags;text".
        while True:
            try:
                head, _, text = os.read(kmsg, 8192).decode("utf-8", "replace").partition(";")
            except BrokenPipeError:  # overwritten while it was read; the next read goes on behind it
                continue
            if not head:
                break
            fields = head.split(",")
            recent = len(fields) > 2 and fields[2].isdigit() and int(fields[2]) / 1e6 >= since_s - _SLACK_S
            if recent and (found := _KILLED.search(text)):
                lines.append(f"killed: {found['name']} (pid {found['pid']}) with {int(found['anon']) / 1024:,.0f} MiB")
    except OSError:  # BlockingIOError: all of it has been read
        pass
    finally:
        os.close(kmsg)
    return lines[-_MOST_LINES:]


def _free(root: Path) -> str:
    sizes: dict[str, int] = {}  # KiB
    for line in text_in(root / "proc/meminfo").splitlines():
        words = line.split()
        if len(words) > 1:
            sizes[words[0]] = int(words[1])
    total, free = sizes.get("MemTotal:", 0), sizes.get("MemAvailable:", 0)
    return f"the machine now has {free / 1024:,.0f} of {total / 1024:,.0f} MiB free"
