"""Opens an SSH tunnel to a box's API: chooses the host, runs `ssh -L`, and explains ssh's errors.

It runs the system's ssh, as Ansible does, and so uses the user's configuration, agent, hardware keys and jump hosts.
Host keys are kept outside the user's known_hosts, because a rented box often has the address of an earlier one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from ..core.errors import DrafthouseError, Problem, did_you_mean, one_problem
from ..core.http import opener

LOOPBACK = "127.0.0.1"
PORT = 8000  # of the API, unless the inventory sets drafthouse_port
_OPEN_S = 40.0  # ConnectTimeout (15 s) and a slow login
_END_S = 5.0  # between SIGTERM and SIGKILL
_POLL_S = 0.1
_MOST_PORT = 65535
_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h
_RENT = "rent a box (make rent), or write one into its hosts.yml"


@dataclass(frozen=True)
class Way:
    """SSH access to a box, and what a user of its API needs."""

    name: str  # in the inventory
    address: str
    alias: str  # its name in the host key file
    ssh_port: int | None = None  # None: the user's ssh configuration decides, as for '' below
    user: str = ""
    identity: str = ""  # path of the private key
    more: tuple[str, ...] = ()  # further arguments of ssh
    api_port: int = PORT
    key_file: str = ""  # the API key's path on the box, absolute or below the user's home
    sudo: bool = False  # the user needs sudo to read root's files, such as the API key

    def ssh(self) -> list[str]:
        """The arguments of a plain ssh login, as a user would type them."""
        words = ["ssh"]
        if self.ssh_port:
            words += ["-p", str(self.ssh_port)]
        if self.identity:
            words += ["-i", self.identity]
        return [*words, *self.more, f"{self.user}@{self.address}" if self.user else self.address]


class HostVars(TypedDict, total=False):
    """Variables of a host that tell how to connect to it, as Ansible documents them for its ssh connection.

    YAML makes numbers or booleans of some: use str(). Of two names for one thing the first here wins.
    """

    ansible_connection: str
    ansible_host: str
    ansible_ssh_host: str
    ansible_user: str
    ansible_ssh_user: str
    ansible_port: int | str
    ansible_ssh_port: int | str
    ansible_ssh_private_key_file: str
    ansible_private_key_file: str
    ansible_ssh_common_args: str
    ansible_ssh_extra_args: str
    ansible_become: bool | str
    drafthouse_port: int | str
    drafthouse_home: str


def hosts_of(inventory: Path, runner: Callable[..., Any] = subprocess.run) -> dict[str, HostVars]:
    """By host name, the variables of all hosts in an inventory, as Ansible reads them.

    Raises DrafthouseError where Ansible is missing, its output is no inventory, or a warning explains why no host is in
    it. An inventory without hosts and without a warning gives {}. ``runner`` is another program in tests.
    """
    command_line = ["ansible-inventory", "-i", str(inventory), "--list"]
    try:
        result = runner(command_line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        do = "run make tunnel, which installs it"
        raise one_problem(
            "program-missing", "no program ansible-inventory", "Ansible, which reads inventories", do
        ) from error
    last_error_line = (result.stderr.strip().splitlines() or [""])[-1]
    complaint = last_error_line.strip().removeprefix("[WARNING]: ")
    hosts: dict[str, HostVars] = {}
    try:
        inventory_data = json.loads(result.stdout)
        for name, variables in inventory_data["_meta"]["hostvars"].items():
            host_vars: Any = {key: _unmarked(value) for key, value in variables.items()}
            hosts[str(name)] = host_vars
        # Hosts without variables appear only in their groups.
        for group in inventory_data.values():
            for name in group.get("hosts", []):
                hosts.setdefault(name, {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise one_problem(
            "inventory-unreadable", complaint or "no answer", "an inventory", "correct it", str(inventory)
        ) from error
    if complaint and not hosts:
        # Ansible's warning tells why there is no host: a missing API key, for example.
        raise one_problem("no-host", f"no host: {complaint}", "a box to reach", _RENT, str(inventory))
    return hosts


def _unmarked(value: Any) -> Any:
    """A value without Ansible's "unsafe" mark, which inventory plugins put on values that are not templates."""
    if isinstance(value, dict) and set(value) == {"__ansible_unsafe"}:
        return value["__ansible_unsafe"]
    return value


def way_to(hosts: Mapping[str, HostVars], name: str, inventory: str) -> Way:
    """SSH access to the host ``name`` ("": the only host of the inventory).

    ``inventory`` is its path, for messages. Raises DrafthouseError for a host that cannot be chosen, this machine
    itself, and a variable that ssh cannot take.
    """
    if not hosts:
        raise one_problem("no-host", "no host", "a box to reach", _RENT, inventory)
    if not name and len(hosts) > 1:
        do = f"name one: make tunnel HOST={sorted(hosts)[0]}"
        raise one_problem("several-hosts", f"{len(hosts)} hosts: {', '.join(sorted(hosts))}", "one", do, inventory)
    name = name or next(iter(hosts))
    if name not in hosts:
        raise one_problem(
            "no-such-host", f"no host '{name}'", "a host of the inventory", did_you_mean(name, hosts), inventory
        )
    values = hosts[name]
    if values.get("ansible_connection") == "local":
        do = f"ask http://{LOOPBACK}:{values.get('drafthouse_port', PORT)} without a tunnel"
        raise one_problem("host-is-local", f"'{name}' is this machine", "another one", do, inventory)
    address = str(values.get("ansible_host") or values.get("ansible_ssh_host") or name)
    user = str(values.get("ansible_user") or values.get("ansible_ssh_user") or "")
    identity = str(values.get("ansible_ssh_private_key_file") or values.get("ansible_private_key_file") or "")
    where = f"{inventory}: {name}"
    _require_plain("ansible_host", address, where)
    _require_plain("ansible_user", user, where)
    _require_expanded("ansible_ssh_private_key_file", identity, where)
    more = _ssh_arguments(values, where)
    return Way(
        name=name,
        address=address,
        # A rented host is named by its instance number, which is never used again. Ansible uses the same alias.
        alias=name,
        ssh_port=_port(values.get("ansible_port") or values.get("ansible_ssh_port"), "ansible_port", where),
        user=user,
        identity=identity,
        more=more,
        api_port=_port(values.get("drafthouse_port"), "drafthouse_port", where) or PORT,
        key_file=f"{values.get('drafthouse_home', '~/drafthouse').removeprefix('~/')}/secrets/api_key",
        sudo=user != "root" and str(values.get("ansible_become", "")).lower() in ("true", "yes", "on", "1"),
    )


def _require_plain(variable: str, value: str, where: str) -> None:
    """Raise DrafthouseError for a template, blanks, or a value that begins with -, an option of ssh."""
    if re.search(r"^-|\{\{|\s", value):
        raise one_problem("invalid-setting", f"{variable}: {value}", "a plain word", "write it out", where)


def _require_expanded(variable: str, value: str, where: str) -> None:
    """Raise DrafthouseError for a value that is a template."""
    if "{{" in value:
        needed = "no template: only Ansible expands them"
        raise one_problem("invalid-setting", f"{variable}: {value}", needed, "write it out", where)


def _ssh_arguments(values: HostVars, where: str) -> tuple[str, ...]:
    """The further ssh arguments in a host's variables. Raises DrafthouseError for an unclosed quote."""
    arguments = f"{values.get('ansible_ssh_common_args') or ''} {values.get('ansible_ssh_extra_args') or ''}"
    _require_expanded("ansible_ssh_common_args", arguments, where)
    try:
        return tuple(shlex.split(arguments))
    except ValueError as error:
        setting = f"ansible_ssh_common_args: {arguments} ({error})"
        raise one_problem("invalid-setting", setting, "shell words", "close the quote", where) from error


def _port(value: object, variable: str, where: str) -> int | None:
    """The port in a variable's ``value``; None if it is not set. Raises DrafthouseError for anything else."""
    if value in (None, ""):
        return None
    if str(value).isdigit() and 1 <= int(str(value)) <= _MOST_PORT:
        return int(str(value))
    raise one_problem("invalid-setting", f"{variable}: {value}", f"a port from 1 to {_MOST_PORT}", "correct it", where)


def options(way: Way, known_hosts: Path) -> list[str]:
    """The ssh options of every connection: no questions to the user, and host keys in the file ``known_hosts``."""
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        # ssh expands words such as %h in a path; %% is a plain %.
        "UserKnownHostsFile": f'"{str(known_hosts).replace("%", "%%")}"',
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": way.alias,
        "CheckHostIP": "no",
        "ConnectTimeout": "15",
        # A lost connection is noticed after 45 s.
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        # No shared connection: a tunnel in one would stay open after this process ends.
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "LogLevel": "ERROR",
    }
    arguments = []
    for name, value in settings.items():
        arguments += ["-o", f"{name}={value}"]
    return arguments


def command(way: Way, local_port: int, known_hosts: Path) -> list[str]:
    """The ssh command line of the tunnel. ssh asks no questions: where it would need an answer, it fails."""
    # Our options stand before those of the host, as ssh takes the first value of each.
    _, *login, target = way.ssh()
    forward = f"{LOOPBACK}:{local_port}:{LOOPBACK}:{way.api_port}"
    return [
        *("ssh", "-N", "-T", "-L", forward, "-o", "ExitOnForwardFailure=yes"),
        *options(way, known_hosts),
        *login,
        *("--", target),
    ]


def check_port(port: int) -> None:
    """Raise DrafthouseError if the local port is in use or may not be bound."""
    try:
        with socket.socket() as probe:
            # As ssh does: a connection in TIME_WAIT does not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Port 0 means any free port to bind(), but ssh needs a number: -1 makes bind() fail.
            probe.bind((LOOPBACK, port or -1))
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        do = f"make tunnel PORT={_free_port(port)}, or stop what listens there"
        problem = Problem("port-taken", f"port {port} of this machine: {words}", f"a free port on {LOOPBACK}", do)
        raise DrafthouseError(problem) from error


def _free_port(taken_port: int) -> int:
    """A free local port to suggest: one of the next 100 above ``taken_port``, else any; `PORT` if none can be bound."""
    for port in [*range(max(taken_port, 1024) + 1, min(taken_port + 100, _MOST_PORT)), 0]:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            _, free_port = probe.getsockname()  # bind() chooses one for port 0
            return int(free_port)
    return PORT


@dataclass
class Tunnel:
    """A tunnel to a box: open once `tunnel` has yielded it, until ssh ends."""

    way: Way
    port: int  # on this machine
    process: subprocess.Popen[bytes]  # ssh
    output: Path  # the file with all output of ssh
    known_hosts: Path

    def wait(self) -> None:
        """Wait until ssh ends, then raise DrafthouseError with the reason."""
        self.process.wait()
        raise DrafthouseError(self.cause(opened=True))

    def cause(self, *, opened: bool) -> Problem:
        """The problem that ssh's output means; ``opened``: the tunnel was open before."""
        return _cause(self.way, self.output.read_text("utf-8", "replace"), self.known_hosts, opened)


@contextlib.contextmanager
def tunnel(
    way: Way,
    port: int,
    known_hosts: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Tunnel]:
    """Keep a tunnel open for the duration of the ``with`` block. Raises DrafthouseError if it cannot be opened."""
    check_port(port)
    with tempfile.TemporaryDirectory(prefix="drafthouse-tunnel-") as folder:
        output = Path(folder) / "words"
        with output.open("wb") as stream:
            process = _start_ssh(command(way, port, known_hosts), stream)
        opening = Tunnel(way, port, process, output, known_hosts)
        try:
            _wait_until_open(opening, clock, sleep)
            yield opening
        finally:
            end(process)


def _start_ssh(arguments: Sequence[str], output: Any) -> subprocess.Popen[bytes]:
    """Start ssh with its output in a file that is open. Raises DrafthouseError if there is no ssh."""
    try:
        # In a new session ssh does not receive Ctrl-C; this process ends it.
        return subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, umask=0o077,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 (one call into the kernel, which takes no lock)
        )  # fmt: skip
    except FileNotFoundError as error:
        raise one_problem("program-missing", "no ssh", "OpenSSH's client", "apt-get install openssh-client") from error


# Looked up at import, because code between fork and exec must do as little as possible.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Let the kernel end ssh when this process dies, even by kill -9 (Linux only)."""
    if _prctl:
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate ssh, kill it after `_END_S` seconds, and wait until it has ended."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_open(opening: Tunnel, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Wait until ssh listens on the local port, which it does after the login. Raises DrafthouseError."""
    deadline = clock() + _OPEN_S
    while True:
        if opening.process.poll() is not None:
            raise DrafthouseError(opening.cause(opened=False))
        try:
            socket.create_connection((LOOPBACK, opening.port), 1).close()
            return
        except OSError:
            pass
        if clock() > deadline:
            do = "try again, or connect manually: " + shlex.join(opening.way.ssh())
            needed = f"a login on {opening.way.name}"
            raise one_problem("tunnel-failed", f"no tunnel within {_OPEN_S:.0f} s", needed, do)
        sleep(_POLL_S)


def _cause(way: Way, output: str, known_hosts: Path, opened: bool) -> Problem:
    """The problem that ssh's output means.

    After the tunnel was open (``opened``) it broke, for whatever reason. Before: the host key has changed, the login
    was refused, the local port is taken, or the box cannot be reached.
    """
    last_line = "it said nothing"
    for line in output.splitlines():
        if line.strip() and "open failed" not in line:
            last_line = line.strip()
    login = shlex.join(way.ssh())
    where = f"{way.name} ({way.ssh()[-1]}" + (f", port {way.ssh_port})" if way.ssh_port else ")")
    if opened:
        found = f"the tunnel broke: {last_line}"
        needed = "a stable connection"
        do = "check that the box still runs, then try again"
        return Problem("tunnel-failed", found, needed, do, where)
    if "IDENTIFICATION HAS CHANGED" in output or "Host key verification failed" in output:
        forget = shlex.join(["ssh-keygen", "-R", way.alias, "-f", str(known_hosts)])
        do = f"find out why: it may be an attack. If the box was reinstalled: {forget}"
        return Problem("ssh-host-key-changed", "the SSH host key has changed", "the known host key", do, where)
    if "Permission denied" in output or "Too many authentication failures" in output:
        do = f"ssh-add your key, or name it in ansible_ssh_private_key_file; to test manually: {login}"
        return Problem("ssh-login-refused", last_line, "an SSH key that the box accepts", do, where)
    if "listen" in output and "port" in output:
        return Problem("port-taken", last_line, f"a free port on {LOOPBACK}", "make tunnel PORT=another", where)
    do = f"check that the box runs and that its address and port are right; to test manually: {login}"
    return Problem("box-unreachable", last_line, "a box that answers on its SSH port", do, where)


def answers(port: int, timeout_s: float = 10) -> bool:
    """True if an HTTP server answers through the tunnel, with any status."""
    try:
        opener().open(f"http://{LOOPBACK}:{port}/health", timeout=timeout_s).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True
