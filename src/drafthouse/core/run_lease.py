"""One run at a time on a home: which run works there, whether it still lives, and the words for one that is refused.

The run keeps a file on the box, `run/lease.json` of the home, and touches it every few seconds. Of a run of this very
machine its process says whether it lives, at once; of another machine's run only the touching does.
"""

from __future__ import annotations

import json
import platform
import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from .documents import json_of
from .errors import Problem
from .procfs import boot_id, start_of

BEAT_EVERY_S = 4.0
#: Another machine's run that has not touched its file for so long (seconds) is gone; so long a younger one is watched.
SILENT_S = 12.0
_PIDS = Path("/proc/self/ns/pid")


@dataclass(frozen=True)
class Lease:
    """Who works on a home. ``began_unix_s`` is told to people and decides nothing."""

    pid: int
    start: str
    """When the process was started, in the kernel's ticks: a pid is given away again."""
    machine: str
    """Which start of which machine the process belongs to."""
    host: str
    what: str
    phase: str
    began_unix_s: float

    @property
    def token(self) -> str:
        """What tells this run from every other."""
        return f"{self.machine}/{self.pid}/{self.start}"

    def lives(self) -> bool | None:
        """Tell whether the run's process lives; None where it is another machine's."""
        if self.machine != this_machine():
            return None
        return start_of(self.pid) == self.start

    def text(self) -> str:
        """The file's one line."""
        return json.dumps(asdict(self))


def this_machine() -> str:
    """What names this start of this machine, or of this container: pids mean nothing outside of one."""
    try:
        return f"{boot_id()} {_PIDS.readlink()}"
    except OSError:  # no Linux
        return platform.node()


def lease_of(pid: int, what: str, phase: str) -> Lease:
    """The lease of the run whose process is ``pid``."""
    return Lease(pid, start_of(pid) or "", this_machine(), platform.node(), what, phase, round(time.time()))


def read_lease(text: str) -> Lease | None:
    """The lease in a file's text; None where it holds none."""
    try:
        data = json_of(text)
        return Lease(**data) if isinstance(data, dict) else None
    except (ValueError, TypeError):
        return None


def lease_file(home: str) -> str:
    """Where a home's lease is kept."""
    return f"{home}/run/lease.json"


def look_command(home: str) -> str:
    """The shell's words that print whether the home is there, when the file was touched, now, and the file."""
    file = shlex.quote(lease_file(home))
    there = f"[ -d {shlex.quote(home)} ] && echo home || echo none"
    return f"{there}; stat -c %Y {file} || echo 0; date +%s; cat {file} || true"


def take_command(home: str, lease: Lease, instead_of: str) -> str:
    """The shell's words that write the lease in place of ``instead_of``; status 3: another is there by now."""
    file, run = lease_file(home), f"{home}/run"
    new = shlex.quote(f"{file}.{lease.pid}.new")
    write = f"printf '%s\\n' {shlex.quote(lease.text())} >{new} && mv -f {new} {shlex.quote(file)}"
    check = f'[ "$(head -n 1 {shlex.quote(file)} 2>/dev/null)" = {shlex.quote(instead_of)} ] || exit 3'
    # Two that start at the same moment take turns; without flock(1) the check alone decides.
    lock = "{ flock 9 2>/dev/null || true; }"
    return f"mkdir -p {shlex.quote(run)} && ( {lock}; {check}; {write} ) 9>>{shlex.quote(run + '/lease.lock')}"


def beat_command(home: str, lease: Lease) -> str:
    """The shell's words for a sign of life, while the lease is still this run's."""
    file = shlex.quote(lease_file(home))
    return f"grep -qsF {shlex.quote(json.dumps(lease.start))} {file} && touch -c {file}"


def refused(lease: Lease, home: str) -> Problem:
    """The problem of a second run on a home."""
    since = time.strftime("%H:%M", time.localtime(lease.began_unix_s))
    place, stop = lease.host, "Ctrl-C there"
    if lease.machine == this_machine():
        place, stop = "this machine", f"kill -INT {lease.pid}"
    return Problem(
        "box-in-use",
        f"another run is working on this box: {lease.what}, at: {lease.phase} "
        f"(pid {lease.pid} on {place}, since {since})",
        f"one run at a time on {home}",
        f"wait for it, or stop it ({stop}), then run again; nothing was changed",
    )


def seen(text: str) -> tuple[bool, int, int, str]:
    """What `look_command` printed: is the home there, the file's time, now (unix seconds), its text."""
    lines: list[str] = [*text.splitlines(), "", "", "", ""]
    numbers = [int(word) if word.strip().isdigit() else 0 for word in lines[1:3]]
    return lines[0].strip() == "home", numbers[0], numbers[1], lines[3].strip()
