"""A lease that allows one run at a time on a box's home (Drafthouse's folder there), and the refusal of a second run.

A run writes `run/lease.json` into the home and touches it every `BEAT_EVERY_S`. Whether the run still lives is told by
its process where it runs on this machine; for a run of another machine only by the age of the file.
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

BEAT_EVERY_S = 4.0  # between two touches of the file
#: A run of another machine is dead if its file is not touched for this long; a younger file is watched this long.
SILENT_S = 12.0
_PIDS = Path("/proc/self/ns/pid")  # a link to this process's pid namespace


@dataclass(frozen=True)
class Lease:
    """The run on a home, and the process by which it is known to live."""

    pid: int
    start: str
    """The process's start in clock ticks since boot, because a pid alone is used again."""
    machine: str
    """The boot of a machine and the pid namespace in which the pid is valid (`this_machine`)."""
    host: str  # the name of that machine, for people
    what: str  # the run's command
    phase: str  # what it does now
    began_unix_s: float  # only shown

    @property
    def token(self) -> str:
        """A text that no other run has."""
        return f"{self.machine}/{self.pid}/{self.start}"

    def lives(self) -> bool | None:
        """True if the run's process lives, False if it has ended; None, unknown, for a run of another machine."""
        if self.machine != this_machine():
            return None
        return start_of(self.pid) == self.start

    def text(self) -> str:
        """The content of the file: one line of JSON."""
        return json.dumps(asdict(self))


def this_machine() -> str:
    """An id of this machine's boot and pid namespace (a container has its own), in which a pid is valid."""
    try:
        return f"{boot_id()} {_PIDS.readlink()}"
    except OSError:  # not Linux
        return platform.node()


def lease_of(pid: int, what: str, phase: str) -> Lease:
    """A lease for the run whose process on this machine is ``pid``."""
    return Lease(
        pid=pid, start=start_of(pid) or "", machine=this_machine(), host=platform.node(), what=what, phase=phase,
        began_unix_s=round(time.time()),
    )  # fmt: skip


def read_lease(text: str) -> Lease | None:
    """The lease in the text of the file; None for any other text."""
    try:
        data = json_of(text)
        return Lease(**data) if isinstance(data, dict) else None
    except (ValueError, TypeError):
        return None


def lease_file(home: str) -> str:
    """The path of the lease in a home."""
    return f"{home}/run/lease.json"


def look_command(home: str) -> str:
    """A shell command that prints four lines for `parsed_look`: home or none, the file's time, the time now, its text.

    Both times are in unix seconds by the box's clock.
    """
    file = shlex.quote(lease_file(home))
    has_home = f"[ -d {shlex.quote(home)} ] && echo home || echo none"
    return f"{has_home}; stat -c %Y {file} || echo 0; date +%s; cat {file} || true"


def take_command(home: str, lease: Lease, instead_of: str) -> str:
    """A shell command that replaces the file's text ``instead_of`` ("": no file) by the lease.

    Its status is 3 if the file has another text, because another run was quicker; then nothing is changed.
    """
    file = lease_file(home)
    run = f"{home}/run"
    new = shlex.quote(f"{file}.{lease.pid}.new")
    write = f"printf '%s\\n' {shlex.quote(lease.text())} >{new} && mv -f {new} {shlex.quote(file)}"
    check = f'[ "$(head -n 1 {shlex.quote(file)} 2>/dev/null)" = {shlex.quote(instead_of)} ] || exit 3'
    # The lock separates two runs that start at the same moment; a box without flock(1) has only the check.
    lock = "{ flock 9 2>/dev/null || true; }"
    return f"mkdir -p {shlex.quote(run)} && ( {lock}; {check}; {write} ) 9>>{shlex.quote(run + '/lease.lock')}"


def beat_command(home: str, lease: Lease) -> str:
    """A shell command that touches the file if it still holds this run's lease, and fails otherwise."""
    file = shlex.quote(lease_file(home))
    return f"grep -qsF {shlex.quote(json.dumps(lease.start))} {file} && touch -c {file}"


def refused(lease: Lease, home: str) -> Problem:
    """The refusal of a second run on a home, with how to stop the first."""
    since = time.strftime("%H:%M", time.localtime(lease.began_unix_s))
    host = lease.host
    stop = "Ctrl-C there"
    if lease.machine == this_machine():
        host = "this machine"
        stop = f"kill -INT {lease.pid}"
    found = (
        f"another run is working on this box: {lease.what}, at: {lease.phase} "
        f"(pid {lease.pid} on {host}, since {since})"
    )
    needed = f"one run at a time on {home}"
    do = f"wait for it, or stop it ({stop}), then run again; nothing was changed"
    return Problem("box-in-use", found, needed, do)


def parsed_look(text: str) -> tuple[bool, int, int, str]:
    """The output of `look_command`: True if the home exists, the file's time (unix s; 0: none), now, its text."""
    # Padded, in case the command printed less.
    home, *words, lease_text = [*text.splitlines(), "", "", "", ""][:4]
    file_s, now_s = [int(word) if word.strip().isdigit() else 0 for word in words]
    return home.strip() == "home", file_s, now_s, lease_text.strip()
