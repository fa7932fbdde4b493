"""Find out whether the kernel's out-of-memory (OOM) killer ended an engine, from its kill counters and its log.

The kernel counts OOM kills of the machine (`oom_kill` in /proc/vmstat) and of each control group (`oom_kill` in
memory.events of cgroup v2, in memory.oom_control of v1; Linux 4.13 and newer). Its log names the killed processes;
reading it needs root, or kernel.dmesg_restrict = 0. Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ..core.files import text_in

MIB = 1024**2
#: The advice of a message about an OOM kill.
DO = (
    "give the engine more memory (the limit of its container or control group, or a larger box), or reduce its needs: "
    "a shorter context, fewer concurrent requests, a smaller draft"
)
# Seconds by which the kernel log's clock (local_clock) and CLOCK_MONOTONIC may differ.
_SLACK_S = 5.0
# A record of the kernel's log about a kill.
_KILLED = re.compile(
    r"Killed process (?P<pid>\d+) \((?P<name>[^)]*)\).*?anon-rss:(?P<anon>\d+)kB", re.IGNORECASE | re.DOTALL
)
_SIGNAL = re.compile(r"SIGKILL|signal 9\b|exit status 137\b")  # the signal of the OOM killer, in an ending
_DOCKERS_WORD = "OOMKilled"  # in an ending, if Docker says so (`runtimes.py` adds it)
_MOST_LINES = 3  # of the kernel's log, in a message


@dataclass(frozen=True)
class Kills:
    """OOM kills up to a time; None for a counter that cannot be read."""

    at_s: float  # CLOCK_MONOTONIC, in seconds
    machine: int | None  # kills of the machine
    group: int | None  # kills of the engine's control group
    folder: Path | None  # of the control group; None: none is visible

    @property
    def known(self) -> bool:
        """True if at least one of the counters could be read."""
        return self.machine is not None or self.group is not None


def read_kills(pid: int | None, root: Path = Path("/")) -> Kills:
    """The present counters, with that of the control group of the process ``pid`` (None: only the machine's).

    Never raises. Tests pass another ``root``.
    """
    folder = None
    if pid:
        folder = _group_folder(pid, root)
    return Kills(time.monotonic(), _counter(root / "proc/vmstat"), _group_kills(folder), folder)


def why_it_died(ending: str, before: Kills | None, root: Path = Path("/")) -> str:
    """A text about how an engine ended: ``ending``, with the evidence for or against an OOM kill.

    ``ending`` is supervisord's or Docker's text. ``before``: the counters while the engine ran, None if they were not
    read. The first case that holds:

    1. No counters from before: likely after the signal that the OOM killer sends, else ``ending`` alone.
    2. A kill was counted, or Docker says so. After another ending: a kill came before, of some process. Else certain if
       Docker says so or the engine's own group counted it; "very likely" if only the machine did, because the kill may
       have hit another program.
    3. The signal without a kill: somebody else sent it, or (if no counter can be read) it was likely the OOM killer.
    4. Any other ending: ``ending`` alone.
    """
    oom_by_docker = _DOCKERS_WORD in ending
    killed = oom_by_docker or bool(_SIGNAL.search(ending))  # by the signal that the OOM killer sends
    if before is None and killed:
        return f"{ending}, likely by the kernel's out-of-memory killer (see dmesg)"
    if before is None:
        return ending
    machine = _rise(before.machine, _counter(root / "proc/vmstat"))
    group = _rise(before.group, _group_kills(before.folder))
    if machine or group or oom_by_docker:
        evidence = "; ".join([_risen(machine, group), *_limit(before.folder), *_killed(before.at_s, root), _free(root)])
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
    """True if the text ``why`` of `why_it_died` names the OOM killer as the reason."""
    return "the kernel's out-of-memory killer" in why and "has not struck" not in why


def _risen(machine: int | None, group: int | None) -> str:
    """The counters that rose, as text, by the kills of machine and group; without any it was Docker that said so."""
    parts = []
    if group:
        parts.append(f"oom_kill of its group rose by {group}")
    if machine:
        parts.append(f"oom_kill of the machine rose by {machine}")
    return " and ".join(parts) or "the container engine says OOMKilled"


def _rise(before: int | None, after: int | None) -> int | None:
    """The rise of a counter; None if it could not be read before or after."""
    if before is None or after is None:
        return None
    return max(0, after - before)


def _counter(path: Path, name: str = "oom_kill") -> int | None:
    """The value in the line ``name VALUE`` of a file; None if there is no such line."""
    for line in text_in(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _group_folder(pid: int, root: Path) -> Path | None:
    """The folder of a process's memory control group; None if none is visible."""
    for line in text_in(root / f"proc/{pid}/cgroup").splitlines():
        hierarchy_id, _, rest = line.partition(":")  # a line is HIERARCHY_ID:CONTROLLERS:PATH
        controllers, _, path = rest.partition(":")
        top = root / "sys/fs/cgroup"
        if "memory" in controllers.split(","):
            top /= "memory"
        elif hierarchy_id != "0" or not (top / "cgroup.controllers").exists():
            continue
        # In a container the path may be the host's, while /sys/fs/cgroup is the container's group.
        for folder in (top / path.lstrip("/"), top):
            if _group_kills(folder) is not None:
                return folder
    return None


def _group_kills(folder: Path | None) -> int | None:
    """The kills of a control group, of either version; None if they cannot be read."""
    if folder is None:
        return None
    version_2 = _counter(folder / "memory.events")
    if version_2 is not None:
        return version_2
    return _counter(folder / "memory.oom_control")


def _limit(folder: Path | None) -> list[str]:
    """The memory limit and the peak use of the group or its nearest limited parent, as text; [] without a limit."""
    while folder is not None and folder.name not in ("", "cgroup"):
        limit = _number(folder, "memory.max", "memory.limit_in_bytes")
        # No limit is the text "max" in cgroup v2, and about 2**63 in v1.
        if limit is not None and limit < 1 << 60:
            text = f"its group's limit is {limit / MIB:,.0f} MiB"
            peak = _number(folder, "memory.peak", "memory.max_usage_in_bytes")
            if peak is not None:
                text += f", its peak use {peak / MIB:,.0f} MiB"
            return [text]
        folder = folder.parent
    return []


def _number(folder: Path, *names: str) -> int | None:
    """The number in the first file of ``names`` with any text; None if that text is no number."""
    for name in names:
        text = text_in(folder / name).strip()
        if text.isdigit():
            return int(text)
        if text:
            return None
    return None


def _killed(since_s: float, root: Path) -> list[str]:
    """The last processes that the kernel's log names as killed since ``since_s``; [] if it cannot be read."""
    lines = []
    try:
        kmsg = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        # A read returns one record: "priority,number,microseconds,flags;text" (Documentation/ABI/testing/dev-kmsg).
        while True:
            try:
                head, _, text = os.read(kmsg, 8192).decode("utf-8", "replace").partition(";")
            except BrokenPipeError:  # the record was overwritten; the next read returns the one after it
                continue
            if not head:
                break
            fields = head.split(",")
            is_recent = len(fields) > 2 and fields[2].isdigit() and int(fields[2]) / 1e6 >= since_s - _SLACK_S
            kill = _KILLED.search(text)
            if is_recent and kill:
                lines.append(f"killed: {kill['name']} (pid {kill['pid']}) with {int(kill['anon']) / 1024:,.0f} MiB")
    except OSError:  # BlockingIOError: there are no further records
        pass
    finally:
        os.close(kmsg)
    return lines[-_MOST_LINES:]


def _free(root: Path) -> str:
    """The free memory of the machine, as text."""
    sizes: dict[str, int] = {}  # KiB
    for line in text_in(root / "proc/meminfo").splitlines():
        words = line.split()
        if len(words) > 1:
            sizes[words[0]] = int(words[1])
    total = sizes.get("MemTotal:", 0)
    free = sizes.get("MemAvailable:", 0)
    return f"the machine now has {free / 1024:,.0f} of {total / 1024:,.0f} MiB free"
