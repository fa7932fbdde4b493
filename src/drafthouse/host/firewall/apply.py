"""Read and change the firewall of this machine. A helper program (`PROGRAM`) applies, confirms and removes rules.

New rules are on trial first. Unless a new connection confirms them in time, the machine reverts them by itself, so that
a wrong rule locks nobody out. Confirmed rules are kept in files, from which systemd's units restore them at boot.
"""

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
from ...core.procfs import parent_of
from ..docker.dockerd_flags import option
from . import rules as firewall
from .means import FirewallMeans, docker_backend

PROGRAM = "/usr/local/sbin/drafthouse-firewall"
UNITS = "/etc/systemd/system"
KEPT = "/etc/drafthouse/firewall"  # confirmed rules
RUN = "/run/drafthouse-firewall"  # rules on trial
_TOOLS = {4: "iptables", 6: "ip6tables"}  # by IP family
_TIMEOUT_S = 90  # of a program
_TAKEN_BACK = 4  # exit status of `PROGRAM confirm` if no rules are on trial any more
# Folders of system administration programs. The PATH of a login often lacks them.
_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")


class TakenBack(DrafthouseError):
    """The confirmation came too late: the machine had already reverted the rules."""


@dataclass(frozen=True)
class Output:
    """A program's output and exit status: 127 if it is missing, 124 after a timeout."""

    status: int
    out: str  # standard output
    error: str = ""  # error output

    @property
    def why(self) -> str:
        """The last line of the error output, or else of the standard output."""
        return ((self.error.strip() or self.out.strip()).splitlines() or [f"exit status {self.status}"])[-1]


def run_program(*argv: str) -> Output:
    """Run a program and return its output, also if it fails, is missing or takes too long."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_FOLDERS])
    program = shutil.which(argv[0], path=path)
    if program is None:
        return Output(127, "", f"{argv[0]} is not there")
    try:
        completed = subprocess.run(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            env={**os.environ, "PATH": path, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Output(124, "", f"{argv[0]} did not end within {_TIMEOUT_S} s")
    return Output(completed.returncode, completed.stdout, completed.stderr)


def families() -> tuple[int, ...]:
    """The IP families (4, 6) of this kernel. Without IPv6 there is nothing to filter, and ip6tables fails."""
    return firewall.FAMILIES if Path("/proc/net/if_inet6").exists() else (4,)


def save_output(family: int) -> Output:
    """Run `iptables-save` or `ip6tables-save` for the filter table."""
    return run_program(f"{_TOOLS[family]}-save", "-t", "filter")


def has_systemd() -> bool:
    """True if systemd is the init system; the test is that of sd_booted(3)."""
    return Path("/run/systemd/system").is_dir()


def read_firewall(answers: Mapping[int, Output]) -> FirewallMeans:
    """The facts about the firewall of this machine; ``answers`` are the outputs of `save_output` by IP family.

    Of two errors of iptables-save the first counts.
    """
    missing = []
    failing = ""
    for family in sorted(answers):
        answer = answers[family]
        if answer.status == 127:
            missing.append(_TOOLS[family])
        elif answer.status != 0:
            failing = failing or answer.why
    backend, source = _docker_backend()
    return FirewallMeans(
        root=os.geteuid() == 0,
        missing=tuple(missing),
        failing=failing,
        docker_backend=backend,
        docker_backend_from=source,
        own_nftables=_nftables() if missing else (),
    )


def _docker_backend() -> tuple[str, str]:
    """Docker's firewall backend, and where it is set: a file or a command line."""
    arguments, where = _dockerd_arguments()
    backend = docker_backend("", arguments)
    if backend != "iptables":
        return backend, where
    file = Path(option(arguments, "--config-file") or "/etc/docker/daemon.json")
    return docker_backend(text_in(file), []), str(file)


def _dockerd_arguments() -> tuple[list[str], str]:
    """The command line of dockerd, running or else in systemd's unit, and where it was read; [] and "" if neither."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        # A dockerd inside a container has another network namespace, with a separate firewall.
        if text_in(comm).strip() == "dockerd" and _namespace(comm.parent) == _namespace(Path("/proc/self")):
            return text_in(comm.with_name("cmdline")).split("\0"), "dockerd's command line"
    if has_systemd():
        return run_program("systemctl", "show", "--property=ExecStart", "docker.service").out.split(), "docker.service"
    return [], ""


def _namespace(process: Path) -> str:
    """The network namespace of a process; '' if this user may not read it."""
    try:
        return str((process / "ns/net").readlink())
    except OSError:
        return ""


def _nftables() -> tuple[str, ...]:
    """The tables of nftables, each as `FAMILY NAME`; () without the program nft."""
    return tuple(line.removeprefix("table ") for line in run_program("nft", "list", "tables").out.splitlines())


def session() -> firewall.Session | None:
    """The SSH connection that this process runs in; None without one.

    sudo drops the variable SSH_CONNECTION, so the environments of the process's ancestors are read too.
    """
    process = os.getpid()
    while process > 1:
        for word in text_in(f"/proc/{process}/environ").split("\0"):
            name, _, value = word.partition("=")
            if name == "SSH_CONNECTION" and (connection := firewall.session(value)):
                return connection
        process = parent_of(process) or 0
    return None


def ssh_ports(running: firewall.Session | None) -> set[int]:
    """SSH's ports: that of the ``running`` connection (None: no SSH) and those that sshd lists; 22 if none is known."""
    ports = set(map(int, re.findall(r"^port (\d+)", run_program("sshd", "-T").out, re.MULTILINE)))
    if running:
        ports.add(running.server_port)
    return ports or {22}


def confirmed_rules(family: int) -> str:
    """The text of the file with the confirmed rules of an IP family; '' if there is none."""
    return text_in(f"{KEPT}/rules.v{family}")


def pending() -> bool:
    """True if rules are on trial, that is, applied but not confirmed."""
    return Path(f"{RUN}/token").exists()


def write(path: str, content: str, mode: int) -> None:
    """Write a file of root's atomically."""
    replace_file(Path(path), content, mode)


def differing(files: Mapping[str, str], modes: Mapping[str, int]) -> list[str]:
    """The paths of ``files`` (content by path) that are missing, or whose content or permissions are wrong."""
    paths = []
    for path, content in files.items():
        if text_in(path) != content or Path(path).stat().st_mode & 0o777 != modes[path]:
            paths.append(path)
    return paths


def start_trial(
    wanted: Mapping[int, Sequence[str]], running: firewall.Session | None, token: str, seconds: int
) -> None:
    """Apply the rules ``wanted`` (by IP family) on trial. The running SSH connection stays allowed in any case.

    Unless confirmed with the ``token`` within ``seconds``, they are reverted. The folder ``trial`` has the rules with
    that connection, which are applied now; ``next`` has those without it, which are kept after the confirmation. Raises
    DrafthouseError if they could not be applied.
    """
    Path(RUN).mkdir(mode=0o700, exist_ok=True)
    for family in firewall.FAMILIES:
        lines = wanted[family]
        write(f"{RUN}/next/rules.v{family}", firewall.restore_text(lines), 0o600)
        on_trial = [*firewall.own_connection(running, family), *lines]
        write(f"{RUN}/trial/rules.v{family}", firewall.restore_text(on_trial), 0o600)
    write(f"{RUN}/connection", json.dumps(str(running)), 0o600)
    output = run_program(PROGRAM, "try", token, str(seconds))
    if output.status != 0:
        found = f"the rules could not be applied: {output.why}"
        needed = "iptables that accepts them for IPv4 and IPv6; the previous rules are active again"
        do = (
            "check `iptables --version` and that the kernel has conntrack (modprobe nf_conntrack); where it lacks"
            " xt_connlimit or xt_hashlimit, set firewall_client_connections and firewall_client_rate to 0"
        )
        raise one_problem("firewall-not-applied", found, needed, do)


def confirm(token: str, running: firewall.Session | None) -> None:
    """Keep the rules on trial with this ``token``.

    Raises DrafthouseError on the connection that started the trial, TakenBack if they were reverted meanwhile.
    """
    if running is not None and text_in(f"{RUN}/connection") == json.dumps(str(running)):
        found = "the connection that applied the rules is still in use, so it proves nothing"
        needed = "a new SSH connection under the new rules"
        do = "let Ansible close it: do not use your own ControlMaster that survives `ssh -O stop`"
        raise one_problem("firewall-not-confirmed", found, needed, do)
    output = run_program(PROGRAM, "confirm", token)
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
    """True if all units are enabled and the early unit, which restores the rules at boot, is active."""
    states = run_program("systemctl", "is-enabled", *units).out.split()
    return states == ["enabled"] * len(units) and run_program("systemctl", "is-active", _early_unit(units)).status == 0


def _early_unit(units: Sequence[str]) -> str:
    """The name of the unit that restores the rules at boot, before the network is up."""
    return next(unit for unit in units if "-early" in unit)


def enable(units: Sequence[str]) -> None:
    """Enable the units, and start the early one. Raises DrafthouseError."""
    # Reload once, after the links exist: only then does a restart of Docker start our units.
    for argv in (
        ["systemctl", "--no-reload", "enable", *units],
        ["systemctl", "daemon-reload"],
        ["systemctl", "start", _early_unit(units)],
    ):
        output = run_program(*argv)
        if output.status != 0:
            found = f"`{' '.join(argv)}`: {output.why}"
            needed = "units that restore the rules when the box or Docker starts"
            do = f"look at `systemctl status {_early_unit(units)}`; the rules themselves are active"
            raise one_problem("firewall-not-applied", found, needed, do)


def remove(program: str, units: Sequence[str]) -> None:
    """Remove our chains, files and units; ``program`` is the helper's text. Raises DrafthouseError."""
    if not Path(PROGRAM).exists():
        write(PROGRAM, program, 0o755)  # a killed run may have left chains without it
    if has_systemd() and any(Path(f"{UNITS}/{unit}").exists() for unit in units):
        run_program("systemctl", "--no-reload", "disable", *units)
        run_program("systemctl", "stop", *units)
    output = run_program(PROGRAM, "remove")
    if output.status != 0:
        found = f"our chains could not be removed: {output.why}"
        needed = f"no chain that begins with {firewall.INPUT[:11]} in iptables-save"
        do = "check whether a rule of yours jumps to them, remove it, and run again"
        raise one_problem("firewall-not-applied", found, needed, do)
    for unit in units:
        Path(f"{UNITS}/{unit}").unlink(missing_ok=True)
    shutil.rmtree(KEPT, ignore_errors=True)
    with contextlib.suppress(OSError):  # other roles may have files in this folder
        Path(KEPT).parent.rmdir()
    shutil.rmtree(RUN, ignore_errors=True)
    Path(PROGRAM).unlink(missing_ok=True)
    if has_systemd():
        run_program("systemctl", "daemon-reload")


def leftovers(units: Sequence[str]) -> list[str]:
    """The paths of our files that exist."""
    paths = [PROGRAM, KEPT, *(f"{UNITS}/{unit}" for unit in units)]
    return [path for path in paths if Path(path).exists()]
