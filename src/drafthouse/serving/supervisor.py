"""Configure Drafthouse's supervisord, which keeps programs on a box running, and control it over its socket (XML-RPC).

Needs the package `supervisor` (http://supervisord.org), which Drafthouse's environment on the box has.
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

_LOG_BYTES = 64 * 1024  # at the end of supervisord's log, which are searched for a program's last ending
_START_S = 20.0  # seconds until supervisord must answer
_STOP_S = 60.0  # seconds until supervisord must have ended; longer than the stopwaitsecs of a program

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
# startretries 0: an engine that dies within startsecs of its start is reported, not started a second time.
# After startsecs, autorestart restarts it whenever it ends. DRAFTHOUSE_SCRIPT is read by nobody: see `_script_hash`.
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

# vLLM's engine core survives when its API server is killed (by the kernel's OOM killer, for example) and still holds
# the GPU memory that the restarted server needs. supervisord kills a program's process group only when it stops the
# program, but it notifies event listeners of every exit (http://supervisord.org/events.html). This listener kills the
# group then. A group's id is not reused while a process of it lives. `dd` reads the payload, which has no newline.
_LEFTOVERS = "leftovers"
_LISTENER_SCRIPT = """\
#!/bin/sh
while echo READY && read -r header; do
    said=$(dd bs=1 count="${header##*len:}" 2>/dev/null)
    kill -s KILL -- "-${said##*pid:}" 2>/dev/null
    printf 'RESULT 2\\nOK'
done
"""
_LISTENER = """
[eventlistener:{name}]
command = {command}
events = PROCESS_STATE_EXITED,PROCESS_STATE_STOPPED
stderr_logfile = NONE
"""


@dataclass(frozen=True)
class Program:
    """A program of supervisord: an arm, or another server such as the gateway."""

    name: str
    command: Sequence[str]  # the first word is the path of a script
    log: str  # the file for all its output
    folder: str = ""  # first in its PATH, with the pinned `vllm`, for example
    path: Sequence[str] = ()  # the next folders in its PATH, before supervisord's
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the variables of supervisord


def configuration(home: Path, programs: Sequence[Program]) -> str:
    """The text of supervisord.conf for ``programs``."""
    listener = _command(["/bin/sh", str(_listener_file(home))])
    text = _HEAD.format(home=home) + _LISTENER.format(name=_LEFTOVERS, command=listener)
    for program in programs:
        text += _PROGRAM.format(
            name=program.name,
            command=_command(program.command),
            digest=_script_hash(Path(program.command[0])),
            more=_variables(program),
            log=program.log.replace("%", "%%%%"),  # supervisord expands a log's path twice
        )
    return text


def _listener_file(home: Path) -> Path:
    return home / f"{_LEFTOVERS}.sh"


def _variables(program: Program) -> str:
    """The program's further variables, for the line `environment` of supervisord.conf.

    That file cannot express a double quote, quotes at the ends of a value, a line break, or " #" and " ;", which begin
    a comment. A variable with such a value, or without a valid name, is left out.
    """
    text = ""
    for name, value in sorted(program.environment.items()):
        if name.isascii() and name.isidentifier() and _can_be_written(value):
            text += f',{name}="{_escape_percent(value)}"'
    folders = [folder for folder in (program.folder, *program.path) if folder and _can_be_written(folder)]
    if folders:
        text += f',PATH="{_escape_percent(":".join(folders))}:%(ENV_PATH)s"'
    return text


def _can_be_written(value: str) -> bool:
    quoted = '"' in value or value != value.strip("'\"")
    return not (quoted or hidden_character(value) or re.search(r"\s[;#]", value))


def _command(words: Sequence[str]) -> str:
    """A command line for supervisord, which splits it like a shell and expands %."""
    return _escape_percent(" ".join(map(_quoted, words)))


def _quoted(word: str) -> str:
    if " " in word and not set("\"\\'") & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def _escape_percent(value: str) -> str:
    """The value with % doubled, since supervisord expands %."""
    return value.replace("%", "%%")


def _script_hash(script: Path) -> str:
    """A hash of the script: with it in the configuration, supervisord restarts a program whose script changed."""
    try:
        return hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    except OSError:
        return "not-there-yet"


class ProgramInfo(TypedDict, total=False):
    """A program in supervisord's API."""

    name: str
    statename: str  # such as "RUNNING"
    spawnerr: str  # why it could not be started; "" if it could
    start: int  # unix seconds; 0 if it was never started
    pid: int  # 0 if it does not run


class _UnixTransport(xmlrpc.client.Transport):
    """XML-RPC over supervisord's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> Any:
        """A connection to the socket, whatever the host; xmlrpc calls this."""
        import http.client  # noqa: PLC0415 (only a box with a running supervisor needs it)

        connection = http.client.HTTPConnection("localhost", timeout=_STOP_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(_STOP_S)
        connection.sock.connect(str(self._path))
        return connection


class Supervisor:
    """The supervisord of one home folder; ``program`` is its executable, by default beside this Python."""

    def __init__(self, home: Path, program: Path | None = None) -> None:
        self.home = home
        self._program = program or Path(sys.executable).parent / "supervisord"
        self.file = home / "supervisord.conf"

    def present_configuration(self) -> str:
        """The text of the present configuration file, '' without a file."""
        if not self.file.is_file():
            return ""
        return self.file.read_text("utf-8")

    def rpc(self) -> Any:
        """The XML-RPC interface of supervisord; its calls raise OSError if supervisord does not run."""
        transport = _UnixTransport(self.home / "supervisor.sock")
        return xmlrpc.client.ServerProxy("http://localhost", transport=transport, allow_none=True).supervisor

    def programs(self) -> dict[str, ProgramInfo]:
        """The programs by name, {} if supervisord does not run."""
        try:
            programs = {info["name"]: info for info in self.rpc().getAllProcessInfo()}
        except (OSError, xmlrpc.client.Error):  # xmlrpc's error: supervisord is shutting down
            return {}
        programs.pop(_LEFTOVERS, None)
        return programs

    def ending(self, name: str) -> str:
        """How a program last ended without being stopped, such as ``exit status 1``; '' if the log does not tell.

        The log is read because the API forgets an ending at the next start, and never tells the signal.
        """
        try:
            with (self.home / "supervisord.log").open("rb") as stream:
                stream.seek(max(0, stream.seek(0, 2) - _LOG_BYTES))
                log = stream.read().decode("utf-8", "replace")
        except OSError:
            return ""
        endings = re.findall(rf"exited: {re.escape(name)} \(([^;)]*)", log)
        if not endings:
            return ""
        return _ending_text(endings[-1].strip())

    def _pids(self) -> dict[str, int]:
        """The pids of the running programs, by name."""
        return {name: info["pid"] for name, info in self.programs().items() if info["pid"]}

    def running(self) -> list[str]:
        """The names of the programs that run or are being started."""
        return [name for name, info in self.programs().items() if info["statename"] in ("RUNNING", "STARTING")]

    def start(self, name: str) -> None:
        """Start a program unless it runs or is being started. Raises DrafthouseError."""
        try:
            if name not in self.running():
                self.rpc().startProcess(name, False)
        except xmlrpc.client.Fault as fault:
            if name not in self.running():  # supervisord may have restarted it in between
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
        """Stop a program, if it runs, and wait until it has ended. Raises DrafthouseError."""
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
        """Run just ``names`` with the configuration ``wanted``; return the names (started, stopped).

        Programs that run unchanged are restarted only if ``fresh``. Raises DrafthouseError.
        """
        before = self._pids()
        self.home.mkdir(parents=True, exist_ok=True)
        if self.present_configuration() != wanted:
            replace_file(_listener_file(self.home), _LISTENER_SCRIPT)
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
        """End all programs and supervisord; return the names of the programs that ran.

        Without one, ["supervisord"] if only that ran, else []. A program may take its `stopwaitsecs` to end, or only
        ``grace_s`` seconds if that is given; then it is killed.
        """
        if not self._alive():
            return self._end_unready()
        leaders = self._pids()
        before = self.running()
        pid = int(self.rpc().getPID())
        self.rpc().shutdown()
        if grace_s is not None and not _becomes_true(lambda: is_gone(pid), grace_s):
            for leader in leaders.values():
                with contextlib.suppress(ProcessLookupError):  # the pid of a program is also the id of its group
                    os.killpg(leader, signal.SIGKILL)
        _wait(lambda: is_gone(pid), _STOP_S, "supervisord to end", self.home)
        return before or ["supervisord"]

    def _end_unready(self) -> list[str]:
        """End a supervisord that does not answer yet: a run that had just started it was interrupted."""
        pids = [pid for pid, words in commands() if words[-2:] == ["-c", str(self.file)]]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        _wait(lambda: all(map(is_gone, pids)), _STOP_S, "supervisord to end", self.home)
        return ["supervisord"] if pids else []

    def _alive(self) -> bool:
        try:
            return bool(self.rpc().getPID())
        except (OSError, xmlrpc.client.Error):
            return False

    def _environment(self) -> dict[str, str]:
        """The variables of supervisord and its programs; caches of engines are below the home and removed with it."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE")}
        folders = {"XDG_CACHE_HOME": str(self.home / "cache"), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**folders, **inherited}

    def _launch(self) -> None:
        """Start supervisord, which starts all programs of its configuration, and wait until it answers."""
        (self.home / "supervisor.sock").unlink(missing_ok=True)
        process = subprocess.run(
            [str(self._program), "-c", str(self.file)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=self._environment(),
        )  # fmt: skip
        if process.returncode:
            raise one_problem(
                "supervisor-failed",
                f"supervisord did not start: {process.stdout.strip()}",
                "a supervisor for the engine",
                f"look at {self.home}/supervisord.log",
            )
        _wait(self._alive, _START_S, "supervisord to answer", self.home)

    def _update(self, names: Sequence[str], fresh: bool) -> None:
        """Have a running supervisord read its configuration, and run ``names``, restarted if ``fresh``."""
        rpc = self.rpc()
        (groups,) = rpc.reloadConfig()
        added, changed, removed = groups
        for name in [*changed, *removed]:
            rpc.stopProcessGroup(name)
            rpc.removeProcessGroup(name)
        for name in [*added, *changed]:
            rpc.addProcessGroup(name)
        for name in names:
            info = rpc.getProcessInfo(name)
            up = info["statename"] in ("RUNNING", "STARTING")
            # An added or changed program has just been started with its group.
            if up and fresh and name not in [*added, *changed]:
                rpc.stopProcess(name)
                up = False
            if not up:
                # False: do not wait for startsecs. `readiness.py` waits until the engine answers.
                rpc.startProcess(name, False)


def _ending_text(ending: str) -> str:
    """An ending for a message: "terminated by SIGKILL" and "exit status 137" become "killed by signal 9 (SIGKILL)"."""
    name = ending.removeprefix("terminated by ")
    status = ending.removeprefix("exit status ")
    try:
        if name != ending:
            number = signal.Signals[name]
        elif status.isdigit():
            number = signal.Signals(int(status) - 128)
        else:
            return ending
    except (KeyError, ValueError):
        return ending
    return f"killed by signal {number.value} ({number.name})"


def _becomes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait at most ``seconds`` until the condition is true; return False if it did not become true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _wait(condition: Callable[[], bool], seconds: float, what: str, home: Path) -> None:
    """Wait until the condition is true. Raises DrafthouseError, which names it as ``what``, after ``seconds``."""
    if not _becomes_true(condition, seconds):
        raise one_problem(
            "supervisor-failed",
            f"waited {seconds:.0f} s for {what}",
            "an answer",
            f"look at {home}/supervisord.log",
        )
