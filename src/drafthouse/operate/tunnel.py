"""A tunnel to a box's API: which box, with which command, and what it means when ssh gives up.

The system's own `ssh -L`, not a library: it knows the user's configuration, agent, hardware keys and jump hosts, as
Ansible does, which comes in the same way. Host keys are kept beside what is rented, not in the user's own known_hosts:
rented boxes take each other's addresses.
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
PORT = 8000
_OPEN_S = 40.0  # ConnectTimeout and the rest of a slow box's login
_END_S = 5.0
_LOOK_EVERY_S = 0.1
_MOST_PORT = 65535
_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h
_RENT = "rent a box (make rent), or write one into its hosts.yml"


@dataclass(frozen=True)
class Way:
    """How a box is reached. ``alias`` stands for it among the known host keys; ``more`` are further words for ssh.

    ``sudo``: what is root's there, as the key is, the user reads with it.
    """

    name: str
    address: str
    alias: str
    ssh_port: int | None = None
    user: str = ""
    identity: str = ""
    more: tuple[str, ...] = ()
    api_port: int = PORT
    key_file: str = ""
    sudo: bool = False

    def ssh(self) -> list[str]:
        """The words that log in there, as a person would type them."""
        words = ["ssh"]
        if self.ssh_port:
            words += ["-p", str(self.ssh_port)]
        if self.identity:
            words += ["-i", self.identity]
        return [*words, *self.more, f"{self.user}@{self.address}" if self.user else self.address]


class HostVars(TypedDict, total=False):
    """Variables of a host: those that say how it is reached. Who reads one makes a text of it: YAML knows types."""

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
    """The hosts of an inventory with their variables, as Ansible reads them. Raises DrafthouseError."""
    words = ["ansible-inventory", "-i", str(inventory), "--list"]
    try:
        done = runner(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        do = "run make tunnel, which installs it"
        raise one_problem(
            "program-missing", "no program ansible-inventory", "Ansible, which reads inventories", do
        ) from error
    complaint = (done.stderr.strip().splitlines() or [""])[-1].strip().removeprefix("[WARNING]: ")
    found: dict[str, HostVars] = {}
    try:
        listed = json.loads(done.stdout)
        for name, variables in listed["_meta"]["hostvars"].items():
            own: Any = {key: _unmarked(value) for key, value in variables.items()}
            found[str(name)] = own
        # Hosts without a single variable stand in their groups alone.
        for group in listed.values():
            for name in group.get("hosts", []):
                found.setdefault(name, {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise one_problem(
            "inventory-unreadable", complaint or "no answer", "an inventory", "correct it", str(inventory)
        ) from error
    if complaint and not found:
        # Why there is none: no key of the account, say, or no network.
        raise one_problem("no-host", f"no host: {complaint}", "a box to reach", _RENT, str(inventory))
    return found


def _unmarked(value: Any) -> Any:
    """A value without the mark of what Ansible takes for no template, as what a plugin found out has it."""
    if isinstance(value, dict) and set(value) == {"__ansible_unsafe"}:
        return value["__ansible_unsafe"]
    return value


def way_to(hosts: Mapping[str, HostVars], name: str, inventory: str) -> Way:
    """The way to a host, or to the only one where none is named. Raises DrafthouseError."""
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
    own = hosts[name]
    if own.get("ansible_connection") == "local":
        do = f"ask http://{LOOPBACK}:{own.get('drafthouse_port', PORT)} without a tunnel"
        raise one_problem("host-is-local", f"'{name}' is this machine", "another one", do, inventory)
    address = str(own.get("ansible_host") or own.get("ansible_ssh_host") or name)
    user = str(own.get("ansible_user") or own.get("ansible_ssh_user") or "")
    identity = str(own.get("ansible_ssh_private_key_file") or own.get("ansible_private_key_file") or "")
    where = f"{inventory}: {name}"
    _require_plain("ansible_host", address, where)
    _require_plain("ansible_user", user, where)
    _require_expanded("ansible_ssh_private_key_file", identity, where)
    more = _ssh_arguments(own, where)
    return Way(
        name=name,
        address=address,
        # What is rented is named by its number, which no other box will ever have. Ansible knows it under the same.
        alias=name,
        ssh_port=_number(own.get("ansible_port") or own.get("ansible_ssh_port"), "ansible_port", inventory, name),
        user=user,
        identity=identity,
        more=more,
        api_port=_number(own.get("drafthouse_port"), "drafthouse_port", inventory, name) or PORT,
        key_file=f"{own.get('drafthouse_home', '~/drafthouse').removeprefix('~/')}/secrets/api_key",
        sudo=user != "root" and str(own.get("ansible_become", "")).lower() in ("true", "yes", "on", "1"),
    )


def _require_plain(variable: str, value: str, where: str) -> None:
    # A word that begins with - would be an option of ssh's.
    if re.search(r"^-|\{\{|\s", value):
        raise one_problem("invalid-setting", f"{variable}: {value}", "a plain word", "write it out", where)


def _require_expanded(variable: str, value: str, where: str) -> None:
    if "{{" in value:
        needed = "no template: only Ansible expands them"
        raise one_problem("invalid-setting", f"{variable}: {value}", needed, "write it out", where)


def _ssh_arguments(own: HostVars, where: str) -> tuple[str, ...]:
    """The further words for ssh that a host's variables name. Raises DrafthouseError."""
    words = f"{own.get('ansible_ssh_common_args') or ''} {own.get('ansible_ssh_extra_args') or ''}"
    _require_expanded("ansible_ssh_common_args", words, where)
    try:
        return tuple(shlex.split(words))
    except ValueError as error:
        found = f"ansible_ssh_common_args: {words} ({error})"
        raise one_problem("invalid-setting", found, "shell words", "close the quote", where) from error


def _number(value: object, word: str, inventory: str, name: str) -> int | None:
    if value in (None, ""):
        return None
    if str(value).isdigit() and 1 <= int(str(value)) <= _MOST_PORT:
        return int(str(value))
    raise one_problem(
        "invalid-setting", f"{word}: {value}", f"a port from 1 to {_MOST_PORT}", "correct it", f"{inventory}: {name}"
    )


def options(way: Way, known_hosts: Path) -> list[str]:
    """The options of every connection of ours: it asks nothing, and knows the box by its own host key."""
    named = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f'"{str(known_hosts).replace("%", "%%")}"',
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": way.alias,
        "CheckHostIP": "no",
        "ConnectTimeout": "15",
        # A box that went away is noticed within a minute.
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        # Over a connection that is shared with others, ours would be the others' too, and live on.
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "LogLevel": "ERROR",
    }
    words = []
    for name, value in named.items():
        words += ["-o", f"{name}={value}"]
    return words


def command(way: Way, local_port: int, known_hosts: Path) -> list[str]:
    """Ssh's command line. It never asks anything: what it cannot do by itself it says and ends."""
    _, *login, target = way.ssh()
    forward = f"{LOOPBACK}:{local_port}:{LOOPBACK}:{way.api_port}"
    return [
        *("ssh", "-N", "-T", "-L", forward, "-o", "ExitOnForwardFailure=yes"),
        *options(way, known_hosts),
        *login,
        *("--", target),
    ]


def check_port(port: int) -> None:
    """Raise DrafthouseError where the port of this machine is taken, or may not be had."""
    try:
        with socket.socket() as probe:
            # As ssh does: what is only being closed is no hindrance.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # 0 would be any port to the system, and is none to ssh: -1 is refused in its stead.
            probe.bind((LOOPBACK, port or -1))
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or str(error)
        do = f"make tunnel PORT={_free_port(port)}, or stop what listens there"
        problem = Problem("port-taken", f"port {port} of this machine: {words}", f"a free port on {LOOPBACK}", do)
        raise DrafthouseError(problem) from error


def _free_port(near: int) -> int:
    for port in [*range(max(near, 1024) + 1, min(near + 100, _MOST_PORT)), 0]:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
    return PORT


@dataclass
class Tunnel:
    """A tunnel that stands: ``wait`` returns never, or raises DrafthouseError when it breaks."""

    way: Way
    port: int
    process: subprocess.Popen[bytes]
    words: Path
    known_hosts: Path

    def wait(self) -> None:
        """Wait until ssh ends by itself, and say why it did."""
        self.process.wait()
        raise DrafthouseError(_why(self.way, self.words.read_text("utf-8", "replace"), self.known_hosts, stood=True))


@contextlib.contextmanager
def tunnel(
    way: Way,
    port: int,
    known_hosts: Path,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Tunnel]:
    """Hold a tunnel open until the block ends, however it does. Raises DrafthouseError where it cannot be opened."""
    check_port(port)
    with tempfile.TemporaryDirectory(prefix="drafthouse-tunnel-") as folder:
        words = Path(folder) / "words"
        with words.open("wb") as target:
            process = _started(command(way, port, known_hosts), target)
        try:
            _until_open(way, port, process, words, known_hosts, clock, sleep)
            yield Tunnel(way, port, process, words, known_hosts)
        finally:
            end(process)


def _started(words: Sequence[str], target: Any) -> subprocess.Popen[bytes]:
    try:
        # A session of its own: Ctrl-C is for us, and we end it.
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=target, stderr=target, start_new_session=True, umask=0o077,
            preexec_fn=_ends_with_us,  # noqa: PLW1509 (one call into the kernel, which takes no lock)
        )  # fmt: skip
    except FileNotFoundError as error:
        raise one_problem("program-missing", "no ssh", "OpenSSH's client", "apt-get install openssh-client") from error


# Looked up here: between fork and exec as little as possible is to happen.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _ends_with_us() -> None:
    """Have ssh ended when we are gone, also by kill -9, after which we cannot end it. Only Linux's kernel does that."""
    if _prctl:
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def end(process: subprocess.Popen[bytes]) -> None:
    """End ssh, and see that it has ended."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_open(
    way: Way,
    port: int,
    process: subprocess.Popen[bytes],
    words: Path,
    known_hosts: Path,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Return when ssh listens, which it does once it has logged in."""
    until = clock() + _OPEN_S
    while True:
        if process.poll() is not None:
            raise DrafthouseError(_why(way, words.read_text("utf-8", "replace"), known_hosts, stood=False))
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
            return
        except OSError:
            pass
        if clock() > until:
            do = "try again, or connect manually: " + shlex.join(way.ssh())
            raise one_problem("tunnel-failed", f"no tunnel within {_OPEN_S:.0f} s", f"a login on {way.name}", do)
        sleep(_LOOK_EVERY_S)


def _why(way: Way, output: str, known_hosts: Path, stood: bool) -> Problem:
    """What ssh's last words mean, and what to do."""
    last = "it said nothing"
    for line in output.splitlines():
        if line.strip() and "open failed" not in line:
            last = line.strip()
    by_hand = shlex.join(way.ssh())
    where = f"{way.name} ({way.ssh()[-1]}" + (f", port {way.ssh_port})" if way.ssh_port else ")")
    if stood:
        return Problem(
            "tunnel-failed",
            f"the tunnel broke: {last}",
            "a stable connection",
            "check that the box still runs, then try again",
            where,
        )
    if "IDENTIFICATION HAS CHANGED" in output or "Host key verification failed" in output:
        forget = shlex.join(["ssh-keygen", "-R", way.alias, "-f", str(known_hosts)])
        do = f"find out why: it may be an attack. If the box was reinstalled: {forget}"
        return Problem("ssh-host-key-changed", "the SSH host key has changed", "the known host key", do, where)
    if "Permission denied" in output or "Too many authentication failures" in output:
        do = f"ssh-add your key, or name it in ansible_ssh_private_key_file; to test manually: {by_hand}"
        return Problem("ssh-login-refused", last, "an SSH key that the box accepts", do, where)
    if "listen" in output and "port" in output:
        return Problem("port-taken", last, f"a free port on {LOOPBACK}", "make tunnel PORT=another", where)
    do = f"check that the box runs and that its address and port are right; to test manually: {by_hand}"
    return Problem("box-unreachable", last, "a box that answers on its SSH port", do, where)


def answers(port: int, timeout_s: float = 10) -> bool:
    """Tell whether anything speaks HTTP behind the tunnel."""
    try:
        opener().open(f"http://{LOOPBACK}:{port}/health", timeout=timeout_s).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True
