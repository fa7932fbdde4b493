"""End what serves on a rented box that is past its deadline, and can neither be destroyed nor stopped.

    power_off.py FOLDER

Runs on the box, as FOLDER/power_off.py, started by the watch over the deadline (deadline_watch.py), whose order
FOLDER/arm.json names the folder that servers run out of. Ended are the supervisors of ours there, what would bring a
server back, and all that they started; and our containers, where the box has Docker. The watch itself, SSH and the
platform's own processes go on. Standard library only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# A supervisor gives each of its programs 30 s to end.
GRACE_S = 40.0
# What is left then, a worker with a session of its own, has so long.
_WORKERS_S = 3.0
_DOCKER_S = 120.0
_ENGINE = "unix:///var/run/docker.sock"
_LISTED = "/containers/json?filters=%7B%22name%22%3A%5B%22%5E%2Fdrafthouse-%22%5D%7D"  # {"name":["^/drafthouse-"]}

#: By pid: the words of the command line, and the parent.
Table = Mapping[int, tuple[tuple[str, ...], int]]


def processes() -> Table:
    """All processes of the box; one that ends meanwhile is left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (entry / "cmdline").read_text("utf-8", errors="replace").rstrip("\0").split("\0")
                # The name may have blanks and brackets; state and parent stand behind its last one.
                parent = int((entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()[1])
                found[int(entry.name)] = (tuple(words), parent)
    return found


def keepers(table: Table, home: str) -> set[int]:
    """The processes that hold a server running, or would bring one back: they run out of ``home``."""
    own = f"{home.rstrip('/')}/"
    program = re.compile(rf"{re.escape(own)}drafthouse-[0-9a-f]+\.pyz")

    def is_server(words: Sequence[str]) -> bool:
        """``bash HOME/served/…/serve.sh`` and the like."""
        return any(word.startswith(f"{own}served/") for word in words)

    def brings_back(words: Sequence[str]) -> bool:
        """``python HOME/drafthouse-HASH.pyz restore``, or ``guard``."""
        return words[2:3] in (("restore",), ("guard",)) and program.fullmatch(words[1]) is not None

    def is_supervisor(words: Sequence[str]) -> bool:
        """``python supervisord … HOME/…``."""
        return any(Path(word).name == "supervisord" for word in words[:2]) and words[-1].startswith(own)

    found = set()
    for pid, (words, _) in table.items():
        if is_server(words) or brings_back(words) or is_supervisor(words):
            found.add(pid)
    return found


def with_children(table: Table, pids: Collection[int]) -> set[int]:
    """These and all that they started, this process never."""
    found = set(pids)
    while more := {pid for pid, (_, parent) in table.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def end(home: str, grace_s: float = GRACE_S) -> int:
    """End all that serves out of ``home``; the number of processes that this was.

    Supervisors get SIGTERM and ``grace_s`` seconds, what is left SIGTERM and 3 seconds, then SIGKILL.
    """
    before = processes()
    roots = keepers(before, home)
    found = with_children(before, roots)
    # Supervisors first: they end their children, and would start again what somebody else ended.
    _signal(roots & found, signal.SIGTERM)
    _await(before, roots & found, grace_s)
    _signal(_left(before, found), signal.SIGTERM)
    _signal(_await(before, found, _WORKERS_S), signal.SIGKILL)
    return len(found)


def _await(before: Table, pids: Collection[int], seconds: float) -> set[int]:
    """Those of ``pids`` that are left after ``seconds`` at most."""
    until = time.monotonic() + seconds
    while (left := _left(before, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def _left(before: Table, pids: Collection[int]) -> set[int]:
    """Those of ``pids`` that still run the same command.

    A number that was given anew has another command line, and a process that only waits to be reaped has none.
    """
    return {pid for pid, (words, _) in processes().items() if pid in pids and words == before[pid][0]}


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


class _Docker(http.client.HTTPConnection):
    """Docker's engine, over its socket: this file stands alone, and the box may have no docker program."""

    def __init__(self) -> None:
        super().__init__("docker", timeout=_DOCKER_S)

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ.get("DOCKER_HOST", _ENGINE).removeprefix("unix://"))

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        self.request(method, path)
        answer = self.getresponse()
        return answer.status, answer.read()


def end_containers() -> int:
    """Stop our containers; the number of those that stopped. Docker does not restart a container that was stopped."""
    ids: list[str] = []
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        ids = [container["Id"] for container in json.loads(_Docker().answer("GET", _LISTED)[1])]
    stopped = 0
    for container in ids:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _ = _Docker().answer("POST", f"/containers/{container}/stop")
            stopped += status < http.client.BAD_REQUEST
    return stopped


def main() -> int:
    """End what serves, and say in one line what that was; nothing where nothing did."""
    home = json.loads((Path(sys.argv[1]) / "arm.json").read_text("utf-8")).get("home")
    if not home:
        return 0
    count, containers = end(home), end_containers()
    if count or containers:
        print(f"stopped what served: {count} processes, {containers} containers; this box still bills: make destroy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
