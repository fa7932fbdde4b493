"""Our supervisord: its configuration, and what it is told over its own socket (XML-RPC).

Needs the `supervisor` package (http://supervisord.org), which the box's own environment has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from ..core.errors import one_problem
from ..core.files import replace_file
from ..core.plain_text import hidden_character
from ..core.procfs import commands, is_gone

_LOG_BYTES = 64 * 1024  # of the end of supervisord's own log
_START_S = 20.0
_STOP_S = 60.0

_HEAD = """\
; Written by Drafthouse (drafthouse.core.supervised); the next run overwrites changes made here.
[supervisord]
logfile = {home}/supervisord.log
logfile_maxbytes = 5MB
logfile_backups = 1
pidfile = {home}/supervisord.pid
childlogdir = {home}
umask = 077

[unix_http_server]
file = {home}/supervisor.sock
chmod = 0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl = unix://{home}/supervisor.sock
"""
# startretries 0: an engine that dies before it served is an error to show, not to try again.
# Once it has lived for startsecs, it is brought back whenever it ends.
_PROGRAM = """
[program:{name}]
command = {command}
environment = DRAFTHOUSE_SCRIPT="{digest}"{more}
redirect_stderr = true
stdout_logfile = {log}
stdout_logfile_maxbytes = 20MB
stdout_logfile_backups = 2
autostart = true
autorestart = true
startsecs = 5
startretries = 0
stopwaitsecs = 30
stopasgroup = true
killasgroup = true
"""

# vLLM's engine core lives on when its API server is killed (by the kernel for memory, say), and keeps the GPU's memory
# from its successor. supervisord ends a program's group where it stops the program, and not where that ended by
# itself; but it tells listeners of each end (http://supervisord.org/events.html). No other process gets the group's
# number while one of the group lives. `dd`, since what `read` takes has an end of line.
_LEFTOVERS = "leftovers"
_LISTENER = """\
#!/bin/sh
while echo READY && read -r header; do
    said=$(dd bs=1 count="${header##*len:}" 2>/dev/null)
    kill -s KILL -- "-${said##*pid:}" 2>/dev/null
    printf 'RESULT 2\\nOK'
done
"""
_LISTENS = """
[eventlistener:{name}]
command = {command}
events = PROCESS_STATE_EXITED,PROCESS_STATE_STOPPED
stderr_logfile = NONE
"""


@dataclass(frozen=True)
class Program:
    """What supervisord runs: the words of a command, the first of them a script; all it prints goes to ``log``.

    ``folder`` stands first on its PATH: the script says `vllm` as a person would, and finds the pinned one. Then come
    ``path``, folders, and what supervisord itself was started with. ``environment`` is added to that of supervisord.
    """

    name: str
    command: Sequence[str]
    log: str
    folder: str = ""
    path: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def configuration(home: Path, programs: Sequence[Program]) -> str:
    """Supervisord's configuration for ``programs``."""
    listener = _command(["/bin/sh", str(_listener(home))])
    text = _HEAD.format(home=home) + _LISTENS.format(name=_LEFTOVERS, command=listener)
    for program in programs:
        text += _PROGRAM.format(
            name=program.name,
            command=_command(program.command),
            digest=_digest(Path(program.command[0])),
            more=_variables(program),
            log=program.log.replace("%", "%%%%"),  # expanded twice there
        )
    return text


def _listener(home: Path) -> Path:
    return home / f"{_LEFTOVERS}.sh"


def _variables(program: Program) -> str:
    """What the program's environment has beside supervisord's own, as its configuration spells it.

    supervisord knows no way to write a double quote, takes quotes off both ends, ends a value with its line, and takes
    what follows a space and # or ; for a comment: what has such a value, or a name that is none, is left out.
    """
    text = ""
    for name, value in sorted(program.environment.items()):
        if name.isascii() and name.isidentifier() and _can_be_written(value):
            text += f',{name}="{_expanded(value)}"'
    folders = [folder for folder in (program.folder, *program.path) if folder and _can_be_written(folder)]
    if folders:
        text += f',PATH="{_expanded(":".join(folders))}:%(ENV_PATH)s"'
    return text


def _can_be_written(value: str) -> bool:
    quoted = '"' in value or value != value.strip("'\"")
    return not (quoted or hidden_character(value) or re.search(r"\s[;#]", value))


def _command(words: Sequence[str]) -> str:
    """A command as supervisord, which splits like a shell and expands %, reads it."""
    return _expanded(" ".join(map(_quoted, words)))


def _quoted(word: str) -> str:
    if " " in word and not set("\"\\'") & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def _expanded(value: str) -> str:
    """A value that supervisord, which expands %, reads as it is."""
    return value.replace("%", "%%")


def _digest(script: Path) -> str:
    """Hash the script, so that a changed one is a changed program, which supervisord restarts."""
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    except OSError:
        return "not-there-yet"


class ProgramInfo(TypedDict, total=False):
    """What supervisord says of a program: ``start`` in unix seconds, ``pid`` 0 where none runs."""

    name: str
    statename: str
    spawnerr: str
    start: int
    pid: int


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC over supervisord's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> Any:
        import http.client  # noqa: PLC0415 (only a box with a running supervisor needs it)

        connection = http.client.HTTPConnection("localhost", timeout=_STOP_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(_STOP_S)
        connection.sock.connect(str(self._path))
        return connection


class Supervisor:
    """The supervisord of one home folder; ``program`` is the one that is started, beside this Python unless named."""

    def __init__(self, home: Path, program: Path | None = None) -> None:
        self.home = home
        self._program = program or Path(sys.executable).parent / "supervisord"
        self.file = home / "supervisord.conf"

    def written(self) -> str:
        """The configuration as it stands, '' where there is none."""
        if not self.file.is_file():
            return ""
        return self.file.read_text("utf-8")

    def rpc(self) -> Any:
        """The supervisor's interface; calls raise OSError where it does not run."""
        transport = _UnixTransport(self.home / "supervisor.sock")
        return xmlrpc.client.ServerProxy("http://localhost", transport=transport, allow_none=True).supervisor

    def programs(self) -> dict[str, ProgramInfo]:
        """Supervisord's information of each program, {} where it does not run."""
        try:
            found = {info["name"]: info for info in self.rpc().getAllProcessInfo()}
        except (OSError, xmlrpc.client.Error):  # an error: it is ending just now
            return {}
        found.pop(_LEFTOVERS, None)
        return found

    def ending(self, name: str) -> str:
        """How a program ended the last time that it did so by itself, '' where the log does not tell.

        Its interface knows that of a program no more once it has started it again, and a signal not at all.
        """
        try:
            with (self.home / "supervisord.log").open("rb") as stream:
                stream.seek(max(0, stream.seek(0, 2) - _LOG_BYTES))
                log = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        found = re.findall(rf"exited: {re.escape(name)} \(([^;)]*)", log)
        if not found:
            return ""
        return _in_words(found[-1].strip())

    def _pids(self) -> dict[str, int]:
        """The process of each program that has one."""
        return {name: info["pid"] for name, info in self.programs().items() if info["pid"]}

    def running(self) -> list[str]:
        """The names of the programs that run or are being started."""
        return [name for name, info in self.programs().items() if info["statename"] in ("RUNNING", "STARTING")]

    def start(self, name: str) -> None:
        """Start a program that does not run; one that is being started is left alone. Raises DrafthouseError."""
        try:
            if name not in self.running():
                self.rpc().startProcess(name, False)
        except xmlrpc.client.Fault as fault:
            if name not in self.running():  # supervisord itself may have been quicker
                raise one_problem(
                    "arm-does-not-start",
                    f"supervisord cannot start {name}: {fault.faultString}",
                    "a running arm",
                    f"look at {self.home}/supervisord.log",
                ) from fault
        except OSError as error:
            raise one_problem(
                "supervisor-failed",
                f"supervisord does not answer: {error}",
                "a running supervisor",
                "run the experiment again",
            ) from error

    def stop(self, name: str) -> None:
        """End a program, and wait until it has ended; one that does not run is left alone. Raises DrafthouseError."""
        try:
            if name in self.running():
                self.rpc().stopProcess(name)
        except (OSError, xmlrpc.client.Fault) as error:
            raise one_problem(
                "arm-does-not-stop",
                f"supervisord cannot stop {name}: {error}",
                "an arm that can be restarted",
                f"look at {self.home}/supervisord.log",
            ) from error

    def converge(self, wanted: str, names: Sequence[str], fresh: bool) -> tuple[list[str], list[str]]:
        """Make exactly ``names`` run under the configuration ``wanted``; return (started, stopped)."""
        before = self._pids()
        self.home.mkdir(parents=True, exist_ok=True)
        if self.written() != wanted:
            replace_file(_listener(self.home), _LISTENER)
            replace_file(self.file, wanted)
        if self._alive():
            try:
                self._update(names, fresh)
            except xmlrpc.client.Error as error:
                raise one_problem(
                    "supervisor-failed",
                    f"supervisord rejects the request: {error}",
                    f"{', '.join(names)} running",
                    f"look at {self.home}/supervisord.log, then run again",
                ) from error
        else:
            self._launch()
        after = self._pids()
        started = [name for name in names if after.get(name) != before.get(name)]
        return started, [name for name in before if name not in names]

    def shut_down(self, grace_s: float | None = None) -> list[str]:
        """End all programs and supervisord itself; return what was running.

        A program has its `stopwaitsecs` to end; ``grace_s`` (seconds) allows it less, and is for a person who waits.
        """
        if not self._alive():
            return self._end_one_that_starts()
        leaders = self._pids()
        before = self.running()
        pid = int(self.rpc().getPID())
        self.rpc().shutdown()
        if grace_s is not None and not _happens(lambda: is_gone(pid), grace_s):
            for leader in leaders.values():
                with contextlib.suppress(ProcessLookupError):  # supervisord makes each the leader of its group
                    os.killpg(leader, signal.SIGKILL)
        _wait(lambda: is_gone(pid), _STOP_S, "supervisord to end", self.home)
        return before or ["supervisord"]

    def _end_one_that_starts(self) -> list[str]:
        """End a supervisord that does not answer yet: whoever started it was interrupted."""
        found = [pid for pid, words in commands() if words[-2:] == ["-c", str(self.file)]]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        _wait(lambda: all(map(is_gone, found)), _STOP_S, "supervisord to end", self.home)
        return ["supervisord"] if found else []

    def _alive(self) -> bool:
        try:
            return bool(self.rpc().getPID())
        except (OSError, xmlrpc.client.Error):
            return False

    def _environment(self) -> dict[str, str]:
        """What the programs start from: caches of engines lie below the home, and go with it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE")}
        own = {"XDG_CACHE_HOME": str(self.home / "cache"), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**own, **kept}

    def _launch(self) -> None:
        (self.home / "supervisor.sock").unlink(missing_ok=True)
        done = subprocess.run(
            [str(self._program), "-c", str(self.file)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=self._environment(),
        )  # fmt: skip
        if done.returncode:
            raise one_problem(
                "supervisor-failed",
                f"supervisord did not start: {done.stdout.strip()}",
                "a supervisor for the engine",
                f"look at {self.home}/supervisord.log",
            )
        _wait(self._alive, _START_S, "supervisord to answer", self.home)

    def _update(self, names: Sequence[str], fresh: bool) -> None:
        rpc = self.rpc()
        added, changed, removed = rpc.reloadConfig()[0]
        for name in [*changed, *removed]:
            rpc.stopProcessGroup(name)
            rpc.removeProcessGroup(name)
        for name in [*added, *changed]:
            rpc.addProcessGroup(name)
        for name in names:
            info = rpc.getProcessInfo(name)
            up = info["statename"] in ("RUNNING", "STARTING")
            if up and fresh and name not in [*added, *changed]:
                rpc.stopProcess(name)
                up = False
            if not up:
                # Not waiting: an engine is ready when it answers, not when it has lived for a while.
                rpc.startProcess(name, False)


def _in_words(ending: str) -> str:
    """Supervisord's "terminated by SIGKILL", or a shell's 128 and the signal, as a person says it."""
    name = ending.removeprefix("terminated by ")
    status = ending.removeprefix("exit status ")
    try:
        if name != ending:
            sent = signal.Signals[name]
        elif status.isdigit():
            sent = signal.Signals(int(status) - 128)
        else:
            return ending
    except (KeyError, ValueError):
        return ending
    return f"killed by signal {sent.value} ({sent.name})"


def _happens(true: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is true, for so long at most; tell whether it is."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _wait(true: Callable[[], bool], seconds: float, what: str, home: Path) -> None:
    if not _happens(true, seconds):
        raise one_problem(
            "supervisor-failed",
            f"waited {seconds:.0f} s for {what}",
            "an answer",
            f"look at {home}/supervisord.log",
        )
