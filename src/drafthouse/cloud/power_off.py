"""End the model servers on a rented box that is past its deadline and can be neither destroyed nor stopped.

    power_off.py FOLDER

The deadline watch (deadline_watch.py) starts it on the box. FOLDER/arm.json, the watch's
orders (it "arms" the watch), names the home folder of the servers. What ends:

- the supervisors of that folder, the start scripts of its servers, and the programs that would restart a server;
- all child processes of these;
- Drafthouse's containers, if the box has Docker.

The watch itself, SSH and processes of the platform keep running. Standard library only.
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
from typing import NamedTuple

# How long to wait for a supervisor after SIGTERM, in seconds; it gives each of its programs 30 s to end.
GRACE_S = 40.0
# Seconds from SIGTERM to SIGKILL for processes that a supervisor left behind, such as a worker in its own session.
_KILL_AFTER_S = 3.0
_DOCKER_TIMEOUT_S = 120.0  # a request to stop a container is answered once it has stopped
_DOCKER_SOCKET = "unix:///var/run/docker.sock"
_LIST_PATH = "/containers/json?filters=%7B%22name%22%3A%5B%22%5E%2Fdrafthouse-%22%5D%7D"  # {"name":["^/drafthouse-"]}


class Process(NamedTuple):
    """A process of the box."""

    argv: tuple[str, ...]  # its command line; ("",) for a zombie
    parent: int  # pid


#: The processes by pid.
ProcessTable = Mapping[int, Process]


def processes() -> ProcessTable:
    """All processes of the box; those that end while they are read are left out."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                argv = (entry / "cmdline").read_text("utf-8", errors="replace").rstrip("\0").split("\0")
                # The process name may contain spaces and parentheses; state and parent follow the last parenthesis.
                parent = int((entry / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()[1])
                table[int(entry.name)] = Process(tuple(argv), parent)
    return table


def server_processes(table: ProcessTable, home: str) -> set[int]:
    """Pids of the processes below ``home`` that are a server, keep one running, or would restart one."""
    prefix = f"{home.rstrip('/')}/"
    program = re.compile(rf"{re.escape(prefix)}drafthouse-[0-9a-f]+\.pyz")

    def is_server(argv: Sequence[str]) -> bool:
        """True for ``bash HOME/served/…/serve.sh`` and similar commands."""
        return any(word.startswith(f"{prefix}served/") for word in argv)

    def restarts_server(argv: Sequence[str]) -> bool:
        """True for ``python HOME/drafthouse-HASH.pyz restore``, or ``guard``."""
        if len(argv) < 3 or not program.fullmatch(argv[1]):
            return False
        return argv[2] in ("restore", "guard")

    def is_supervisor(argv: Sequence[str]) -> bool:
        """True for ``python supervisord … HOME/…``."""
        return any(Path(word).name == "supervisord" for word in argv[:2]) and argv[-1].startswith(prefix)

    pids = set()
    for pid, (argv, _) in table.items():
        if is_server(argv) or restarts_server(argv) or is_supervisor(argv):
            pids.add(pid)
    return pids


def with_descendants(table: ProcessTable, pids: Collection[int]) -> set[int]:
    """The processes and all their descendants, without this process."""
    tree = set(pids)
    while children := {pid for pid, (_, parent) in table.items() if parent in tree} - tree:
        tree |= children
    return tree - {os.getpid()}


def end_servers(home: str, grace_s: float = GRACE_S) -> int:
    """End all servers below ``home``; return how many processes these were, with their descendants.

    1. The `server_processes` get SIGTERM and ``grace_s`` seconds.
    2. All that still run, descendants too, get SIGTERM and `_KILL_AFTER_S`.
    3. Whatever still runs gets SIGKILL.
    """
    table = processes()
    roots = server_processes(table, home)
    pids = with_descendants(table, roots)
    # A supervisor ends its children itself. One that sees a child end first may start it again, and ends that too when
    # its own SIGTERM comes.
    _signal(roots & pids, signal.SIGTERM)
    _wait_for_exit(table, roots & pids, grace_s)
    _signal(_still_running(table, pids), signal.SIGTERM)
    _signal(_wait_for_exit(table, pids, _KILL_AFTER_S), signal.SIGKILL)
    return len(pids)


def _wait_for_exit(table: ProcessTable, pids: Collection[int], seconds: float) -> set[int]:
    """Wait up to ``seconds`` for the processes to exit; return those that still run."""
    until = time.monotonic() + seconds
    while (running := _still_running(table, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    return running


def _still_running(table: ProcessTable, pids: Collection[int]) -> set[int]:
    """Those of ``pids`` that still run the same command as in ``table``.

    A reused pid has another command line, and a zombie has an empty one, so neither counts.
    """
    return {pid for pid, (argv, _) in processes().items() if pid in pids and argv == table[pid].argv}


def _signal(pids: Collection[int], signum: signal.Signals) -> None:
    """Send a signal to each of the processes; those that have exited, or belong to another user, are left out."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signum)


class _Docker(http.client.HTTPConnection):
    """Connection to the Docker API over its socket; the box may not have the docker program."""

    def __init__(self) -> None:
        super().__init__("docker", timeout=_DOCKER_TIMEOUT_S)

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
    """Stop Drafthouse's running containers, so that their restart policy does not apply; return how many stopped.

    0 too if there is no Docker, or if its list cannot be read. A container that cannot be stopped is not counted.
    """
    ids: list[str] = []
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, TypeError, KeyError):
        _, body = _Docker().answer("GET", _LIST_PATH)
        ids = [container["Id"] for container in json.loads(body)]
    stopped = 0
    for container_id in ids:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _ = _Docker().answer("POST", f"/containers/{container_id}/stop")
            if status < http.client.BAD_REQUEST:
                stopped += 1
    return stopped


def main() -> int:
    """End all servers, and print how many these were, if any. Nothing is done if arm.json has no home."""
    home = json.loads((Path(sys.argv[1]) / "arm.json").read_text("utf-8")).get("home")
    if not home:
        return 0
    ended = end_servers(home)
    containers = end_containers()
    if ended or containers:
        print(f"stopped the servers: {ended} processes, {containers} containers; this box still bills: make destroy")
    return 0


if __name__ == "__main__":
    sys.exit(main())
