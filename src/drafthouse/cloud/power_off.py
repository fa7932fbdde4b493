"""End the model servers on a rented box that is past its deadline and can be neither destroyed nor stopped.

    power_off.py FOLDER

Runs on the box, started by the deadline watch (deadline_watch.py). The watch's order, FOLDER/arm.json, names the home
folder of the servers. This ends Drafthouse's supervisors there, programs that restart a server, all their child
processes, and Drafthouse's containers if the box has Docker. The watch itself, SSH and processes of the platform
keep running. Standard library only.
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

# Longer than the 30 s that a supervisor gives each of its programs to end.
GRACE_S = 40.0
# Time until SIGKILL for processes that a supervisor left, such as a worker in its own session.
_KILL_AFTER_S = 3.0
_DOCKER_S = 120.0  # time limit of a request; Docker waits for a container to stop
_DOCKER_SOCKET = "unix:///var/run/docker.sock"
_LIST_PATH = "/containers/json?filters=%7B%22name%22%3A%5B%22%5E%2Fdrafthouse-%22%5D%7D"  # {"name":["^/drafthouse-"]}

#: By pid: the words of the command line, and the pid of the parent.
Table = Mapping[int, tuple[tuple[str, ...], int]]


def processes() -> Table:
    """All processes of the box; those that end while they are read are left out."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = (entry / "cmdline").read_text("utf-8", errors="replace").rstrip("\0").split("\0")
                # The process name may contain blanks and brackets; state and parent follow its last bracket.
                parent = int((entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()[1])
                table[int(entry.name)] = (tuple(words), parent)
    return table


def root_processes(table: Table, home: str) -> set[int]:
    """Pids of the processes below ``home`` that keep a server running or would restart one."""
    prefix = f"{home.rstrip('/')}/"
    program = re.compile(rf"{re.escape(prefix)}drafthouse-[0-9a-f]+\.pyz")

    def is_server(words: Sequence[str]) -> bool:
        """True for ``bash HOME/served/…/serve.sh`` and similar commands."""
        return any(word.startswith(f"{prefix}served/") for word in words)

    def restarts_server(words: Sequence[str]) -> bool:
        """True for ``python HOME/drafthouse-HASH.pyz restore``, or ``guard``."""
        return words[2:3] in (("restore",), ("guard",)) and program.fullmatch(words[1]) is not None

    def is_supervisor(words: Sequence[str]) -> bool:
        """True for ``python supervisord … HOME/…``."""
        return any(Path(word).name == "supervisord" for word in words[:2]) and words[-1].startswith(prefix)

    pids = set()
    for pid, (words, _) in table.items():
        if is_server(words) or restarts_server(words) or is_supervisor(words):
            pids.add(pid)
    return pids


def with_children(table: Table, pids: Collection[int]) -> set[int]:
    """The processes and all their descendants, without this process."""
    tree = set(pids)
    while children := {pid for pid, (_, parent) in table.items() if parent in tree} - tree:
        tree |= children
    return tree - {os.getpid()}


def end(home: str, grace_s: float = GRACE_S) -> int:
    """End all servers below ``home``; return the number of processes.

    Supervisors get SIGTERM and ``grace_s`` seconds. Processes that are left get SIGTERM and 3 seconds, then SIGKILL.
    """
    table = processes()
    roots = root_processes(table, home)
    pids = with_children(table, roots)
    # Supervisors first: they end their children themselves, and would restart a child that is ended by other means.
    _signal(roots & pids, signal.SIGTERM)
    _wait_for_exit(table, roots & pids, grace_s)
    _signal(_still_running(table, pids), signal.SIGTERM)
    _signal(_wait_for_exit(table, pids, _KILL_AFTER_S), signal.SIGKILL)
    return len(pids)


def _wait_for_exit(table: Table, pids: Collection[int], seconds: float) -> set[int]:
    """Wait up to ``seconds`` for the processes to exit; return those that still run."""
    until = time.monotonic() + seconds
    while (left := _still_running(table, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def _still_running(table: Table, pids: Collection[int]) -> set[int]:
    """Those of ``pids`` that still run the same command as in ``table``.

    A reused pid has another command line, and a zombie process has none.
    """
    return {pid for pid, (words, _) in processes().items() if pid in pids and words == table[pid][0]}


def _signal(pids: Collection[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signum)


class _Docker(http.client.HTTPConnection):
    """Connection to the Docker API over its socket; the box may not have the docker program."""

    def __init__(self) -> None:
        super().__init__("docker", timeout=_DOCKER_S)

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ.get("DOCKER_HOST", _DOCKER_SOCKET).removeprefix("unix://"))

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the answer."""
        self.request(method, path)
        answer = self.getresponse()
        return answer.status, answer.read()


def end_containers() -> int:
    """Stop Drafthouse's containers, which Docker then does not restart; return how many stopped."""
    ids: list[str] = []
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        ids = [container["Id"] for container in json.loads(_Docker().answer("GET", _LIST_PATH)[1])]
    stopped = 0
    for container in ids:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _ = _Docker().answer("POST", f"/containers/{container}/stop")
            stopped += status < http.client.BAD_REQUEST
    return stopped


def main() -> int:
    """End all servers; print one line that says how many, or nothing if there were none."""
    home = json.loads((Path(sys.argv[1]) / "arm.json").read_text("utf-8")).get("home")
    if not home:
        return 0
    count, containers = end(home), end_containers()
    if count or containers:
        print(f"stopped what served: {count} processes, {containers} containers; this box still bills: make destroy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
