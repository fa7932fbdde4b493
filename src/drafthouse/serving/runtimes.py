"""One interface to observe, start and stop an arm (a server: baseline or speculative): a process or a container.

Processes are created in `supervisor.py`, under Drafthouse's supervisord, and containers in `containers.py`.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from ..core.docker_api import DockerApi, EngineError
from ..core.errors import one_problem
from ..core.procfs import age_of
from ..profiles.container import PREFIX
from .supervisor import Supervisor

if TYPE_CHECKING:
    from drafthouse.serving.supervisor import ProgramInfo

_DOCKER_S = 60.0  # seconds for the answer to a call
_EVENTS_S = 3600  # seconds: Docker's events of this time are searched for the death of a container
_TAIL_BYTES = 20_000  # of a log file's end that are read for its last lines


@dataclass(frozen=True)
class State:
    """An arm at this moment."""

    running: bool
    started: float | None  # unix seconds of its last start; None if it never started
    why: str = ""  # how it ended, if it did
    pid: int | None = None  # None: it does not run


def is_same_start(before: State, now: State) -> bool:
    """True if two states of an arm are of the same start.

    The pid decides if both have one: supervisord changes the time of a start when the wall clock is set back.
    """
    if before.pid and now.pid:
        return before.pid == now.pid
    return before.started == now.started


def process_age_of(state: State) -> float | None:
    """Seconds since an arm's process started; None if the process is not visible (it runs in a container)."""
    if not state.pid:
        return None
    return age_of(state.pid)


class Runtime(Protocol):
    """The interface of both runtimes."""

    def state(self, arm: str) -> State:
        """The present state of the arm."""

    def ending(self, arm: str) -> str:
        """How the arm last ended without being stopped, such as ``exit status 1``; '' if that is not known."""

    def log_name(self, arm: str) -> str:
        """The path of the arm's log, or the command that prints it, for a message."""

    def mark(self, arm: str) -> str:
        """The present end of the arm's log, as a value for the ``since`` of `printed`."""

    def printed(self, arm: str, since: str = "") -> str:
        """The arm's log, or only what follows the mark ``since``."""

    def tail(self, arm: str, lines: int) -> str:
        """The last lines of the arm's log, '' if there are none."""

    def start(self, arm: str) -> None:
        """Start an arm that ended; an arm that runs is left alone. Raises DrafthouseError."""

    def stop(self, arm: str) -> None:
        """Stop an arm and wait until it has ended. Raises DrafthouseError."""


class ProcessRuntime:
    """Arms under Drafthouse's supervisord, which writes the output of each to a file in the folder ``logs``."""

    def __init__(self, supervisor: Supervisor, logs: Path) -> None:
        self._supervisor = supervisor
        self._logs = logs

    def state(self, arm: str) -> State:
        """The state of the program in supervisord; one that supervisord does not know has ended."""
        info: ProgramInfo = self._supervisor.programs().get(arm, {})
        # supervisord writes 0 for none.
        started = info.get("start") or None
        pid = info.get("pid") or None
        if info.get("statename") in ("RUNNING", "STARTING", "STOPPING"):
            return State(True, started, "", pid)
        why = error = str(info.get("spawnerr") or "")
        # If supervisord could not start the program, the last ending in its log is of an earlier start.
        if not error or error.startswith("Exited too quickly"):
            why = self.ending(arm) or error or "it ended"
        return State(False, started, why, pid)

    def ending(self, arm: str) -> str:
        """The program's last ending in supervisord's log."""
        return self._supervisor.ending(arm)

    def log_name(self, arm: str) -> str:
        """The path of the log file."""
        return str(self._logs / f"{arm}.log")

    def mark(self, arm: str) -> str:
        """The log's size in bytes."""
        log = self._logs / f"{arm}.log"
        if not log.exists():
            return "0"
        return str(log.stat().st_size)

    def printed(self, arm: str, since: str = "") -> str:
        """The log after byte ``since``; the whole file if it was rotated after that mark."""
        try:
            with (self._logs / f"{arm}.log").open("rb") as stream:
                size = stream.seek(0, 2)
                start = int(since or 0)
                if start > size:
                    start = 0
                stream.seek(start)
                return stream.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def tail(self, arm: str, lines: int) -> str:
        """The last lines of the log file."""
        try:
            with (self._logs / f"{arm}.log").open("rb") as stream:
                stream.seek(0, 2)
                stream.seek(max(0, stream.tell() - _TAIL_BYTES))
                text = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def start(self, arm: str) -> None:
        """Start the program, unless supervisord has restarted it. Raises DrafthouseError."""
        self._supervisor.start(arm)

    def stop(self, arm: str) -> None:
        """Stop the program and wait until it has ended. Raises DrafthouseError."""
        self._supervisor.stop(arm)


class _ContainerState(TypedDict, total=False):
    """The state of a container in Docker's API."""

    Status: str  # such as "running" or "restarting"
    StartedAt: str  # ISO 8601 time in UTC; in the year 1 if it never started
    Pid: int  # 0 if it does not run
    ExitCode: int
    OOMKilled: bool
    Error: str  # why it could not be started; "" if it could


class ContainerRuntime:
    """Arms in containers, over Docker's socket. If Docker does not answer, the container counts as missing."""

    def state(self, arm: str) -> State:
        """The state of the container in Docker."""
        container = self._call("GET", f"/containers/{PREFIX}{arm}/json")
        if not container:
            return State(False, None, "no such container")
        info: _ContainerState = container["State"]
        why = info.get("Error") or _exit_status(info.get("ExitCode"), bool(info.get("OOMKilled")))
        # The status `restarting` does not count: Docker restarts an engine that dies at each start.
        running = info.get("Status") == "running"
        return State(running, _unix_seconds(str(info.get("StartedAt", ""))), str(why), info.get("Pid") or None)

    def ending(self, arm: str) -> str:
        """The container's last exit status: from its state or, after a restart, from Docker's `die` event."""
        state = self.state(arm)
        if not state.running:
            return state.why
        now = time.time()
        container = self._call("GET", f"/containers/{PREFIX}{arm}/json")
        # The id and not the name: an earlier container may have had this name.
        filters = json.dumps({"container": [container["Id"] if container else ""], "event": ["die", "oom"]})
        since = f"{now - _EVENTS_S:.0f}"
        until = f"{now:.6f}"
        events = self._call("GET", "/events", since=since, until=until, filters=filters) or []
        if not isinstance(events, list):  # the answer has a line for each event, and a single line is parsed as such
            events = [events]
        deaths = [event for event in events if event.get("Action") == "die"]
        if not deaths:
            return ""
        oom = any(event.get("Action") == "oom" for event in events)
        return _exit_status(deaths[-1]["Actor"]["Attributes"].get("exitCode"), oom)

    def log_name(self, arm: str) -> str:
        """The command that prints the log."""
        return f"`docker logs {PREFIX}{arm}`"

    def mark(self, arm: str) -> str:
        """The present time in unix seconds, which Docker's `since` parameter takes."""
        return f"{time.time():.6f}"

    def printed(self, arm: str, since: str = "") -> str:
        """The container's log, or only what was printed at or after ``since``."""
        if not since:
            return self._log(arm)
        return self._log(arm, since=since)

    def tail(self, arm: str, lines: int) -> str:
        """The last lines of the container's log."""
        return self._log(arm, tail=str(lines)).rstrip("\n")

    def start(self, arm: str) -> None:
        """Start the container, unless its restart policy has done so. Raises DrafthouseError."""
        self._call("POST", f"/containers/{PREFIX}{arm}/start")
        state = self.state(arm)
        if not state.running:
            raise one_problem(
                "arm-does-not-start",
                f"the container {PREFIX}{arm} does not start: {state.why}",
                "a running arm",
                f"look at {self.log_name(arm)}",
            )

    def stop(self, arm: str) -> None:
        """Stop the container. Raises DrafthouseError."""
        self._call("POST", f"/containers/{PREFIX}{arm}/stop")
        if self.state(arm).running:
            raise one_problem(
                "arm-does-not-stop",
                f"the container {PREFIX}{arm} does not stop",
                "an arm that can be restarted",
                f"look at {self.log_name(arm)}",
            )

    def _log(self, arm: str, **query: str) -> str:
        """The container's log; '' if Docker does not answer."""
        with contextlib.suppress(OSError, EngineError):
            return DockerApi(timeout_s=_DOCKER_S).log(f"{PREFIX}{arm}", **query)
        return ""

    def _call(self, method: str, path: str, **query: str) -> Any:
        """Docker's answer to a call; None if it refuses or does not answer."""
        with contextlib.suppress(OSError, EngineError):
            return DockerApi(timeout_s=_DOCKER_S).call(method, path, **query)
        return None


def runtime_of(runtime: str, home: str | Path) -> Runtime:
    """The runtime named `docker` or `process`; ``home`` is the box's folder with ``supervisor`` and ``logs``."""
    if runtime == "docker":
        return ContainerRuntime()
    return ProcessRuntime(Supervisor(Path(home, "supervisor")), Path(home, "logs"))


def _exit_status(code: object, out_of_memory: bool) -> str:
    """An ending as `oom_killer.py` parses it: ``exit status 137 (OOMKilled)``."""
    return f"exit status {code} (OOMKilled)" if out_of_memory else f"exit status {code}"


def _unix_seconds(text: str) -> float | None:
    """Docker's time (in UTC, with nanoseconds) in unix seconds; None for the year 1, which means never, or no time."""
    parts = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?", text)
    if not parts or text.startswith("0001"):
        return None
    seconds = datetime.fromisoformat(parts.group(1)).replace(tzinfo=timezone.utc).timestamp()
    return seconds + float(parts.group(2) or 0)
