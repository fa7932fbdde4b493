"""The firewall of the box we run on: what is there, and what our program on it is told to do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.files import replace_file, text_in
from ..docker.dockerd_flags import option
from . import rules as firewall
from .means import Means, docker_backend

PROGRAM = "/usr/local/sbin/drafthouse-firewall"
UNITS = "/etc/systemd/system"
KEPT = "/etc/drafthouse/firewall"
RUN = "/run/drafthouse-firewall"
_TOOLS = {4: "iptables", 6: "ip6tables"}
_LONGEST_S = 90
_TAKEN_BACK = 4  # our program's exit status where there is nothing on trial any more
# Where the administrator's programs lie; a login without them on PATH is common.
_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")


class TakenBack(DrafthouseError):
    """A confirmation that came after the box had taken the rules back."""


@dataclass(frozen=True)
class Output:
    """What a program printed, and its exit status; 127 where it is missing."""

    status: int
    out: str
    error: str = ""

    @property
    def why(self) -> str:
        """The last line of what it complained about."""
        return ((self.error.strip() or self.out.strip()).splitlines() or [f"exit status {self.status}"])[-1]


def tell(*argv: str) -> Output:
    """Run a program of the box to its end; a missing one is an answer too."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_FOLDERS])
    program = shutil.which(argv[0], path=path)
    if program is None:
        return Output(127, "", f"{argv[0]} is not there")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            env={**os.environ, "PATH": path, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Output(124, "", f"{argv[0]} did not end within {_LONGEST_S} s")
    return Output(done.returncode, done.stdout, done.stderr)


def families() -> tuple[int, ...]:
    """The IP families of this kernel: without IPv6 in it there is nothing to filter, and ip6tables fails."""
    return firewall.FAMILIES if Path("/proc/net/if_inet6").exists() else (4,)


def saved(family: int) -> Output:
    """`iptables-save` of the filter table."""
    return tell(f"{_TOOLS[family]}-save", "-t", "filter")


def has_systemd() -> bool:
    """Tell whether systemd runs this box (the same sign that sd_booted(3) takes)."""
    return Path("/run/systemd/system").is_dir()


def means(answers: Mapping[int, Output]) -> Means:
    """Look at what this box filters with."""
    missing, failing = [], ""
    for family in sorted(answers):
        answer = answers[family]
        if answer.status == 127:
            missing.append(_TOOLS[family])
        elif answer.status != 0:
            failing = failing or answer.why
    backend, source = _docker_backend()
    return Means(
        root=os.geteuid() == 0,
        missing=tuple(missing),
        failing=failing,
        docker_backend=backend,
        docker_backend_from=source,
        own_nftables=_nftables() if missing else (),
    )


def _docker_backend() -> tuple[str, str]:
    """Docker's firewall backend and where that is set."""
    arguments, where = _dockerd_arguments()
    backend = docker_backend("", arguments)
    if backend != "iptables":
        return backend, where
    file = Path(option(arguments, "--config-file") or "/etc/docker/daemon.json")
    return docker_backend(text_in(file), []), str(file)


def _dockerd_arguments() -> tuple[list[str], str]:
    """How dockerd runs; where it does not, how systemd would start it."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        # An engine inside a container has a network, and a firewall, of its own.
        if text_in(comm).strip() == "dockerd" and _network(comm.parent) == _network(Path("/proc/self")):
            return text_in(comm.with_name("cmdline")).split("\0"), "dockerd's command line"
    if has_systemd():
        return tell("systemctl", "show", "--property=ExecStart", "docker.service").out.split(), "docker.service"
    return [], ""


def _network(process: Path) -> str:
    """Which network namespace a process is in, '' where that is not ours to know."""
    try:
        return str((process / "ns/net").readlink())
    except OSError:
        return ""


def _nftables() -> tuple[str, ...]:
    """Nftables' tables of this box, as `family name`."""
    return tuple(line.removeprefix("table ") for line in tell("nft", "list", "tables").out.splitlines())


def session() -> firewall.Session | None:
    """The SSH connection that we run in: sudo drops its variable, an ancestor of ours still has it."""
    process = os.getpid()
    while process > 1:
        for word in text_in(f"/proc/{process}/environ").split("\0"):
            name, _, value = word.partition("=")
            if name == "SSH_CONNECTION" and (found := firewall.session(value)):
                return found
        # The name in parentheses may have spaces and parentheses of its own.
        process = int((text_in(f"/proc/{process}/stat").rpartition(")")[2].split() or ["", "0"])[1])
    return None


def ssh_ports(running: firewall.Session | None) -> set[int]:
    """The ports that SSH answers on: the running connection's, and sshd's own; 22 where nobody knows."""
    ports = set(map(int, re.findall(r"^port (\d+)", tell("sshd", "-T").out, re.MULTILINE)))
    if running:
        ports.add(running.server_port)
    return ports or {22}


def kept(family: int) -> str:
    """The confirmed rules of one family as they stand in their file, '' where there are none."""
    return text_in(f"{KEPT}/rules.v{family}")


def pending() -> bool:
    """Tell whether rules are on trial."""
    return Path(f"{RUN}/token").exists()


def write(path: str, content: str, mode: int) -> None:
    """Write a file of root's as a whole or not at all."""
    replace_file(Path(path), content, mode)


def differing(files: Mapping[str, str], modes: Mapping[str, int]) -> list[str]:
    """Which of our files are missing, differ, or may be read by whom they shall not."""
    found = []
    for path, content in files.items():
        if text_in(path) != content or Path(path).stat().st_mode & 0o777 != modes[path]:
            found.append(path)
    return found


def start_trial(
    wanted: Mapping[int, Sequence[str]], running: firewall.Session | None, token: str, seconds: int
) -> None:
    """Put ``wanted`` on trial, with the running SSH connection kept whatever they say.

    They are taken back by themselves after ``seconds``. Raises DrafthouseError where they could not be put in place.
    """
    Path(RUN).mkdir(mode=0o700, exist_ok=True)
    for family in firewall.FAMILIES:
        lines = wanted[family]
        write(f"{RUN}/next/rules.v{family}", firewall.restore_text(lines), 0o600)
        on_trial = [*firewall.own_connection(running, family), *lines]
        write(f"{RUN}/trial/rules.v{family}", firewall.restore_text(on_trial), 0o600)
    write(f"{RUN}/connection", json.dumps(str(running)), 0o600)
    output = tell(PROGRAM, "try", token, str(seconds))
    if output.status != 0:
        raise one_problem(
            "firewall-not-applied",
            f"the rules could not be applied: {output.why}",
            "iptables that accepts them for IPv4 and IPv6; the previous rules are active again",
            "check `iptables --version` and that the kernel has conntrack (modprobe nf_conntrack); where it lacks"
            " xt_connlimit or xt_hashlimit, set firewall_client_connections and firewall_client_rate to 0",
        )


def confirm(token: str, running: firewall.Session | None) -> None:
    """Keep what is on trial. Raises DrafthouseError where this is no new connection, TakenBack where it is late."""
    if running is not None and text_in(f"{RUN}/connection") == json.dumps(str(running)):
        raise one_problem(
            "firewall-not-confirmed",
            "the connection that applied the rules is still in use, so it proves nothing",
            "a new SSH connection under the new rules",
            "let Ansible close it: do not use your own ControlMaster that survives `ssh -O stop`",
        )
    output = tell(PROGRAM, "confirm", token)
    if output.status == 0:
        return
    reverted = Problem(
        "firewall-not-confirmed",
        f"the rules were reverted: {output.why}",
        "a confirmation during the trial period",
        "run again; for a slow connection, increase firewall_confirm_seconds",
    )
    if output.status == _TAKEN_BACK:
        raise TakenBack(reverted)
    raise DrafthouseError(reverted)


def enabled(units: Sequence[str]) -> bool:
    """Tell whether all units start with the box, and those that stay active are."""
    states = tell("systemctl", "is-enabled", *units).out.split()
    return states == ["enabled"] * len(units) and tell("systemctl", "is-active", _early(units)).status == 0


def _early(units: Sequence[str]) -> str:
    return next(unit for unit in units if "-early" in unit)


def enable(units: Sequence[str]) -> None:
    """Let the units start with the box. Raises DrafthouseError."""
    # One reload, after the links are there: only then do Docker's own restarts start ours.
    for argv in (
        ["systemctl", "--no-reload", "enable", *units],
        ["systemctl", "daemon-reload"],
        ["systemctl", "start", _early(units)],
    ):
        output = tell(*argv)
        if output.status != 0:
            raise one_problem(
                "firewall-not-applied",
                f"`{' '.join(argv)}`: {output.why}",
                "units that restore the rules when the box or Docker starts",
                f"look at `systemctl status {_early(units)}`; the rules themselves are active",
            )


def remove(program: str, units: Sequence[str]) -> None:
    """Take away our chains, files and units, and nothing else. Raises DrafthouseError."""
    if not Path(PROGRAM).exists():
        write(PROGRAM, program, 0o755)  # a run that was killed may have left chains without it
    if has_systemd() and any(Path(f"{UNITS}/{unit}").exists() for unit in units):
        tell("systemctl", "--no-reload", "disable", *units)
        tell("systemctl", "stop", *units)
    output = tell(PROGRAM, "remove")
    if output.status != 0:
        raise one_problem(
            "firewall-not-applied",
            f"our chains could not be removed: {output.why}",
            f"no chain that begins with {firewall.INPUT[:11]} in iptables-save",
            "check whether a rule of yours jumps to them, remove it, and run again",
        )
    for unit in units:
        Path(f"{UNITS}/{unit}").unlink(missing_ok=True)
    shutil.rmtree(KEPT, ignore_errors=True)
    with contextlib.suppress(OSError):  # others of our roles may keep something beside it
        Path(KEPT).parent.rmdir()
    shutil.rmtree(RUN, ignore_errors=True)
    Path(PROGRAM).unlink(missing_ok=True)
    if has_systemd():
        tell("systemctl", "daemon-reload")


def leftovers(units: Sequence[str]) -> list[str]:
    """What of our files is on the box."""
    paths = [PROGRAM, KEPT, *(f"{UNITS}/{unit}" for unit in units)]
    return [path for path in paths if Path(path).exists()]
