"""How an arm runs on the box: a program of our supervisord, or a container. One face for both.

What makes the arms run is `supervisor.py` and `containers.py`; what looks at them while they run is here.
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

_DOCKER_S = 60.0
_EVENTS_S = 3600  # how far back a death is looked for
_TAIL_BYTES = 20_000


@dataclass(frozen=True)
class State:
    """One arm at this moment. ``started``: epoch seconds of this start of it, None where it never was."""

    running: bool
    started: float | None
    why: str = ""
    pid: int | None = None


def is_same_start(one: State, other: State) -> bool:
    """Tell whether two looks saw the same start of an arm.

    By its process where that is known: supervisord moves the time of a start when the wall clock is set back.
    """
    if one.pid and other.pid:
        return one.pid == other.pid
    return one.started == other.started


def process_age_of(arm: State) -> float | None:
    """Seconds since an arm's process started; None for a process that is not visible from here (a container's)."""
    if not arm.pid:
        return None
    return age_of(arm.pid)


class Runtime(Protocol):
    """What a runtime tells of its arms."""

    def state(self, arm: str) -> State:
        """Whether the arm runs, since when, and otherwise why not."""

    def ending(self, arm: str) -> str:
        """How the arm ended the last time that it did so by itself, '' where nobody knows."""

    def log_name(self, arm: str) -> str:
        """Where a person reads what the arm printed."""

    def mark(self, arm: str) -> str:
        """The place in what the arm prints that it has reached at this moment."""

    def printed(self, arm: str, since: str = "") -> str:
        """What the arm printed, all that is kept or what came after a mark."""

    def tail(self, arm: str, lines: int) -> str:
        """The last lines that the arm printed, '' where there is nothing."""

    def start(self, arm: str) -> None:
        """Start an arm that died; one that runs is left alone. Raises DrafthouseError."""

    def stop(self, arm: str) -> None:
        """Stop an arm, so that the next start is a fresh one. Raises DrafthouseError."""


class ProcessRuntime:
    """Arms under our own supervisord, which writes each one's output to a file."""

    def __init__(self, supervisor: Supervisor, logs: Path) -> None:
        self._supervisor, self._logs = supervisor, logs

    def state(self, arm: str) -> State:
        """Supervisord's own state of the program."""
        info: ProgramInfo = self._supervisor.programs().get(arm, {})
        started, pid = info.get("start") or None, info.get("pid") or None
        if info.get("statename") in ("RUNNING", "STARTING", "STOPPING"):
            return State(True, started, "", pid)
        why = error = str(info.get("spawnerr") or "")
        # What supervisord could not start has no end in its log but that of an earlier run.
        if not error or error.startswith("Exited too quickly"):
            why = self.ending(arm) or error or "it ended"
        return State(False, started, why, pid)

    def ending(self, arm: str) -> str:
        """What supervisord's log says of the program's last end."""
        return self._supervisor.ending(arm)

    def log_name(self, arm: str) -> str:
        """The log file."""
        return str(self._logs / f"{arm}.log")

    def mark(self, arm: str) -> str:
        """The log's size in bytes."""
        log = self._logs / f"{arm}.log"
        if not log.exists():
            return "0"
        return str(log.stat().st_size)

    def printed(self, arm: str, since: str = "") -> str:
        """The log behind ``since``; from its beginning where it was rotated since."""
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
        """The end of the log."""
        try:
            with (self._logs / f"{arm}.log").open("rb") as stream:
                stream.seek(0, 2)
                stream.seek(max(0, stream.tell() - _TAIL_BYTES))
                text = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def start(self, arm: str) -> None:
        """Have supervisord start the program, where it has not done so by itself. Raises DrafthouseError."""
        self._supervisor.start(arm)

    def stop(self, arm: str) -> None:
        """Have supervisord end the program, and wait until it has. Raises DrafthouseError."""
        self._supervisor.stop(arm)


class _ContainerState(TypedDict, total=False):
    """The state of a container, as Docker's API tells it."""

    Status: str
    StartedAt: str
    Pid: int
    ExitCode: int
    OOMKilled: bool
    Error: str


class ContainerRuntime:
    """Arms in containers, asked over Docker's socket. Where Docker says nothing, there is no container."""

    def state(self, arm: str) -> State:
        """The container's state as Docker tells it."""
        found = self._asked("GET", f"/containers/{PREFIX}{arm}/json")
        if not found:
            return State(False, None, "no such container")
        info: _ContainerState = found["State"]
        why = info.get("Error") or _exit_status(info.get("ExitCode"), bool(info.get("OOMKilled")))
        # Docker starts an engine that died again and again: `Restarting` is no sign of life.
        running = info.get("Status") == "running"
        return State(running, _epoch(str(info.get("StartedAt", ""))), str(why), info.get("Pid") or None)

    def ending(self, arm: str) -> str:
        """The container's last exit status; once it was started again, the engine's event of its death."""
        state = self.state(arm)
        if not state.running:
            return state.why
        now, found = time.time(), self._asked("GET", f"/containers/{PREFIX}{arm}/json")
        # By its id: an earlier container of this name has died too.
        filters = json.dumps({"container": [found["Id"] if found else ""], "event": ["die", "oom"]})
        since, until = f"{now - _EVENTS_S:.0f}", f"{now:.6f}"
        events = self._asked("GET", "/events", since=since, until=until, filters=filters) or []
        if not isinstance(events, list):
            events = [events]
        deaths = [event for event in events if event.get("Action") == "die"]
        if not deaths:
            return ""
        oom = any(event.get("Action") == "oom" for event in events)
        return _exit_status(deaths[-1]["Actor"]["Attributes"].get("exitCode"), oom)

    def log_name(self, arm: str) -> str:
        """The command that shows the log."""
        return f"`docker logs {PREFIX}{arm}`"

    def mark(self, arm: str) -> str:
        """The time in epoch seconds, which is what Docker takes for the beginning of a log."""
        return f"{time.time():.6f}"

    def printed(self, arm: str, since: str = "") -> str:
        """The container's log behind ``since``."""
        if not since:
            return self._log(arm)
        return self._log(arm, since=since)

    def tail(self, arm: str, lines: int) -> str:
        """The end of the container's log."""
        return self._log(arm, tail=str(lines)).rstrip("\n")

    def start(self, arm: str) -> None:
        """Start the container, where its restart policy has not done so. Raises DrafthouseError."""
        self._asked("POST", f"/containers/{PREFIX}{arm}/start")
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
        self._asked("POST", f"/containers/{PREFIX}{arm}/stop")
        if self.state(arm).running:
            raise one_problem(
                "arm-does-not-stop",
                f"the container {PREFIX}{arm} does not stop",
                "an arm that can be restarted",
                f"look at {self.log_name(arm)}",
            )

    def _log(self, arm: str, **query: str) -> str:
        with contextlib.suppress(OSError, EngineError):
            return DockerApi(timeout_s=_DOCKER_S).log(f"{PREFIX}{arm}", **query)
        return ""

    def _asked(self, method: str, path: str, **query: str) -> Any:
        with contextlib.suppress(OSError, EngineError):
            return DockerApi(timeout_s=_DOCKER_S).call(method, path, **query)
        return None


def runtime_of(runtime: str, home: str | Path) -> Runtime:
    """The runtime of that name, `docker` or `process`; ``home`` is the folder of the latter's supervisor."""
    if runtime == "docker":
        return ContainerRuntime()
    return ProcessRuntime(Supervisor(Path(home, "supervisor")), Path(home, "logs"))


def _exit_status(code: object, out_of_memory: bool) -> str:
    """A container's end as the rest of this program reads it: ``exit status 137 (OOMKilled)``."""
    return f"exit status {code} (OOMKilled)" if out_of_memory else f"exit status {code}"


def _epoch(text: str) -> float | None:
    """Docker's time (nanoseconds, always UTC) in epoch seconds; None for 'never' (year 1)."""
    found = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?", text)
    if not found or text.startswith("0001"):
        return None
    seconds = datetime.fromisoformat(found.group(1)).replace(tzinfo=timezone.utc).timestamp()
    return seconds + float(found.group(2) or 0)
