"""Real hosts for the tests: containers that Ansible and testinfra reach over SSH, on a network of their own.

A workstation runs systemd, sshd and, where asked for, a container engine of its own; a rental runs sshd without
systemd and without privileges; a peer asks the others from outside, over IPv4 and IPv6.

What differs from a real machine, and matters to a test: the kernel is this machine's (no module can be loaded),
``docker restart`` is the reboot and keeps ``boot_id``, and the memory and the processors are all of this machine's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import docker
import testinfra
import yaml

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.workspace import ROOT
from tests.hosts.images import CACHE, Images, Say
from tests.hosts.reach import nameservers
from tests.support.ended import Ended, cpu_seconds

__all__ = ["Ended"]

BIN = Path(sys.executable).parent
CGROUPS = Path("/sys/fs/cgroup")
LABEL = "drafthouse-test.lab"  # on every container and network: the lab's name
OWNER = "drafthouse-test.owner"  # the process that made it; when it is gone, what it left is removed
START_S = 300
STOP_S = 40  # an engine inside gives its own containers 10 s to end
COMMAND_S = 240
PLAY_S = 2700
_LOOK_S = 0.1  # between two looks at something that is awaited
_ATTEMPTS = 20  # at finding a subnet that nobody has
_STARTED: list[subprocess.Popen[bytes]] = []  # the container engine, where this process started it

_SYSTEMD = {
    "cap_add": ["NET_ADMIN", "SYS_ADMIN"],
    "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
    "tmpfs": {"/run": "", "/run/lock": ""},
    # A reboot that the box itself asks for ends its PID 1: the engine then starts it again.
    "restart_policy": {"Name": "unless-stopped"},
}
# What sshd and apt use; nothing with which a firewall, a mount or a kernel setting could be changed.
_RENTAL = {
    "cap_drop": ["ALL"],
    "cap_add": [
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL"),
        *("NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"),
    ],
    "security_opt": ["no-new-privileges"],
}


# What was pushed once is still there for the next registry. The engine of the tests itself pushes to loopback, where
# Docker asks for no TLS.
REGISTRY_PORT = 5000
_REGISTRY = {
    "binds": ["drafthouse-test-registry:/var/lib/docker-registry"],
    "port_bindings": {REGISTRY_PORT: ("127.0.0.1",)},
}


@dataclass(frozen=True)
class Kind:
    """What a kind of host is made of: an image, and what its container may do."""

    image: str
    limits: Mapping[str, Any] = field(default_factory=dict)
    systemd: bool = False
    engine: bool = False
    ports: tuple[int, ...] = ()  # published on this machine too


KINDS = {
    "workstation": Kind("workstation", _SYSTEMD, systemd=True),
    "workstation-docker": Kind("workstation-docker", _SYSTEMD, systemd=True, engine=True),
    "rental": Kind("rental", _RENTAL),
    "peer": Kind("peer"),
    "registry": Kind("registry", _REGISTRY, ports=(REGISTRY_PORT,)),
}


class CommandFailed(AssertionError):
    """A command on a host ended with another status than 0, or not in time."""

    def __init__(self, host: str, argv: Iterable[str], done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(
            f"{host}: {shlex.join(argv)}: exit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
        self.done = done


class Host:
    """A running host. It is looked at over SSH, as a real one would be."""

    user = "root"
    port = 22

    def __init__(self, lab: Lab, name: str, kind: Kind, container: Any, ip4: str, ip6: str) -> None:
        self.lab, self.name, self.kind, self.container = lab, name, kind, container
        self.ip4, self.ip6 = ip4, ip6
        self.key = lab.key

    def __repr__(self) -> str:
        return f"<{self.name} {self.ip4}>"

    def run(
        self, *argv: str, check: bool = True, timeout: float = COMMAND_S, stdin: str | None = None, fresh: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command over SSH, with ``fresh`` over a connection of its own instead of the shared one.

        Raises CommandFailed with ``check``, and subprocess.TimeoutExpired after ``timeout`` seconds.
        """
        words = ["-o", "ControlPath=none"] if fresh else []
        words += [f"{self.user}@{self.ip4}", "--", shlex.join(argv)]
        return self._ended(["ssh", "-F", str(self.lab.ssh_config), *words], argv, check, timeout, stdin)

    def exec(
        self, *argv: str, check: bool = True, timeout: float = COMMAND_S, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command through the container engine, past sshd: to set up, and to look when SSH is closed."""
        # Not the SDK's exec: it knows neither a time limit nor standard input.
        return self._ended(["docker", "exec", "-i", self.container.name, *argv], argv, check, timeout, stdin)

    def _ended(
        self, command: list[str], argv: tuple[str, ...], check: bool, timeout: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        given: dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **given)
        if check and done.returncode != 0:
            raise CommandFailed(self.name, argv, done)
        return done

    def put(self, path: str, content: str | bytes, mode: str = "0644") -> None:
        """Write a file of root's on the host, with the folders above it. Not through SSH."""
        data = content.encode() if isinstance(content, str) else content
        self.exec("mkdir", "-p", str(Path(path).parent))
        command = ["docker", "exec", "-i", self.container.name, "sh", "-c", 'cat >"$1" && chmod "$2" "$1"', "-"]
        subprocess.run([*command, path, mode], input=data, capture_output=True, timeout=COMMAND_S, check=True)

    def restart(self, wait: bool = True, timeout: float = START_S) -> float:
        """Reboot; return the seconds until SSH answers again and systemd has started everything (0.0 without wait)."""
        began = time.monotonic()
        self.disconnect()
        self.container.restart(timeout=STOP_S)
        if not wait:
            return 0.0
        self.wait(timeout)
        return time.monotonic() - began

    def wait(self, timeout: float = START_S) -> None:
        """Wait until SSH answers and, with systemd, until everything has started. Raises DrafthouseError."""
        deadline = time.monotonic() + timeout
        while not self._answers():
            self.container.reload()
            if time.monotonic() > deadline or self.container.status == "exited":
                raise DrafthouseError(
                    Problem(
                        code="program-failed",
                        where=f"the test host {self.name}",
                        found=f"no SSH at {self.ip4} within {timeout:.0f} s, the container is {self.container.status}",
                        needed="a host that answers",
                        do="read its last words:\n" + self.logs()[-3000:],
                    )
                )
            time.sleep(_LOOK_S)
        if self.kind.systemd:
            left = max(1, int(deadline - time.monotonic()))
            # "degraded" is a unit of the container's that cannot run here; a test of a unit asks for the unit.
            self.run("timeout", str(left), "systemctl", "is-system-running", "--wait", check=False, timeout=left + 10)
        if self.kind.engine:
            self.run(
                "timeout", "240", "sh", "-c", "until docker version >/dev/null 2>&1; do sleep 0.2; done", timeout=250
            )

    def _answers(self) -> bool:
        """Tell whether an SSH server greets at the host's address."""
        try:
            with socket.create_connection((self.ip4, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def disconnect(self) -> None:
        """Close the shared SSH connection, so that the next command makes a new one."""
        command = ["ssh", "-F", str(self.lab.ssh_config), "-O", "exit", f"{self.user}@{self.ip4}"]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_S, check=False)

    def logs(self) -> str:
        """What the host's PID 1 has printed."""
        text: bytes = self.container.logs(tail=200)
        return text.decode(errors="replace")

    def remove(self) -> None:
        """End the host and forget it, with its volumes."""
        self.disconnect()
        with contextlib.suppress(docker.errors.NotFound):
            self.container.remove(force=True, v=True)
        self.lab.hosts.pop(self.name, None)

    def backend(self, kind: str = "ssh") -> Any:
        """Testinfra's view of the host, through ``ssh`` or ``paramiko``."""
        return testinfra.get_host(
            f"{kind}://{self.user}@{self.ip4}:{self.port}",
            ssh_config=str(self.lab.ssh_config),
            ssh_identity_file=str(self.key),
        )


class Lab:
    """Hosts on a network of their own, all of which are gone when the block ends.

    ``prefix`` begins every name at the container engine's. Networks get explicit subnets out of 10.88.0.0/16
    (or ``range4``) and fd88::/16: those that Docker would choose are the same inside a workstation.
    """

    def __init__(
        self, prefix: str | None = None, range4: str = "10.88", range6: str = "fd88", say: Say = print
    ) -> None:
        self.client = engine(say)
        self.name = f"{prefix or os.environ.get('DRAFTHOUSE_LAB', 'dh')}-{secrets.token_hex(3)}"
        self.images = Images(self.client, say)
        self.hosts: dict[str, Host] = {}
        self.say = say
        self._range4, self._range6 = range4, range6
        self._exit = contextlib.ExitStack()
        self._next = 10

    def __enter__(self) -> Lab:
        remove_abandoned(self.client)
        # Short: a path of a control socket has 104 characters at most, and OpenSSH adds 20.
        self.folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="dh-", dir="/tmp")))
        self._exit.callback(self._remove_all)
        self.key = self.folder / "key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(self.key)]
        subprocess.run(words, check=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL)
        self.ssh_config = self.folder / "ssh_config"
        self.ssh_config.write_text("".join(f"{line}\n" for line in self._ssh_lines()), "utf-8")
        self.network, self._net4, self._net6 = self._new_network()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def _ssh_lines(self) -> Iterator[str]:
        yield "Host *"
        yield "User root"
        yield f"IdentityFile {self.key}"
        yield "IdentitiesOnly yes"
        yield "BatchMode yes"
        yield "ConnectTimeout 60"
        yield "ServerAliveInterval 5"
        yield "ServerAliveCountMax 3"
        # The hosts live for minutes, and their addresses are used again by the next ones.
        yield "StrictHostKeyChecking no"
        yield "UserKnownHostsFile /dev/null"
        yield "LogLevel ERROR"
        yield "ControlMaster auto"
        yield f"ControlPath {self.folder}/%C"
        yield "ControlPersist 60"

    def _new_network(self) -> tuple[Any, str, str]:
        for attempt in range(_ATTEMPTS):
            number = random.randrange(1, 250)
            net4, net6 = f"{self._range4}.{number}", f"{self._range6}:0:0:{number:x}:"
            pools = [
                docker.types.IPAMPool(subnet=f"{net4}.0/24", gateway=f"{net4}.1"),
                docker.types.IPAMPool(subnet=f"{net6}:/64", gateway=f"{net6}:1"),
            ]
            try:
                network = self.client.networks.create(
                    self.name,
                    driver="bridge",
                    enable_ipv6=True,
                    ipam=docker.types.IPAMConfig(pool_configs=pools),
                    labels=self._labels(),
                )
            except docker.errors.APIError as error:
                if attempt == _ATTEMPTS - 1 or "overlap" not in str(error).lower():
                    raise
                continue
            return network, net4, net6
        raise AssertionError("unreachable")

    def _labels(self) -> dict[str, str]:
        return {LABEL: self.name, OWNER: str(os.getpid())}

    def start(
        self,
        kind: str,
        name: str | None = None,
        *,
        release: str = "trixie",
        volumes: Iterable[str] = (),
        wait: bool = True,
        environment: Mapping[str, str] | None = None,
        keys: bytes | None = None,
        image: str | None = None,
        hostname: str | None = None,
    ) -> Host:
        """Start a host and wait until it answers. Raises DrafthouseError.

        ``volumes``: folders of the host that lie on a disk of their own, which goes with the host. ``environment``:
        what its first process is given. ``keys``: whom it lets in, instead of the lab's own key. ``image``: what it is
        a copy of, with the ``hostname`` of that one.
        """
        if kind not in KINDS:
            raise DrafthouseError(
                Problem(
                    "program-failed",
                    f"the kind '{kind}'",
                    "a kind of test host",
                    f"use one of {', '.join(KINDS)}",
                    "tests/hosts",
                )
            )
        wanted = KINDS[kind]
        image = image or self.images.image(wanted.image, release)
        number, self._next = self._next, self._next + 1
        name = name or f"{kind}-{number}"
        ip4, ip6 = f"{self._net4}.{number}", f"{self._net6}:{number:x}"
        container = self._container(name, wanted, image, (ip4, ip6), list(volumes), environment or {}, hostname)
        host = Host(self, name, wanted, container, ip4, ip6)
        self.hosts[name] = host
        keys = self.key.with_suffix(".pub").read_bytes() if keys is None else keys
        container.put_archive("/", _packed({"root/.ssh/authorized_keys": keys}))
        container.start()
        if wait:
            host.wait()
        return host

    def _container(
        self,
        name: str,
        kind: Kind,
        image: str,
        addresses: tuple[str, str],
        volumes: list[str],
        environment: Mapping[str, str],
        hostname: str | None,
    ) -> Any:
        api = self.client.api
        limits = dict(kind.limits)
        if kind.systemd:
            volumes = ["/var/lib/docker", *volumes]
            limits |= {"binds": cgroup_binds(), "tmpfs": {**limits["tmpfs"], **cgroup_tmpfs()}}
        settings = api.create_host_config(**limits)
        if kind.systemd:
            # What `--security-opt systempaths=unconfined` means; the SDK has no word for it.
            settings |= {"MaskedPaths": [], "ReadonlyPaths": [], "CgroupnsMode": "host"}
        # As systemd has it on a machine, and leaves to whoever made a container: what is mounted in one name space is
        # seen in the others. Without it no unit gets its credentials.
        command = ["sh", "-c", "mount --make-rshared / && exec /usr/local/sbin/boot"] if kind.systemd else None
        endpoint = api.create_endpoint_config(ipv4_address=addresses[0], ipv6_address=addresses[1])
        made = api.create_container(
            image,
            command,
            name=f"{self.name}-{name}",
            hostname=hostname or name,
            volumes=volumes,
            ports=list(kind.ports),
            labels=self._labels(),
            environment={"BOX_DNS": " ".join(nameservers()), **environment},
            host_config=settings,
            networking_config=api.create_networking_config({self.name: endpoint}),
        )
        return self.client.containers.get(made["Id"])

    @property
    def gateway(self) -> str:
        """This machine's own address on the hosts' network."""
        return f"{self._net4}.1"

    def load_engine(self, host: Host, timeout: float = 900) -> str:
        """Put the real llama.cpp server's image into a workstation's own engine; return the image's name."""
        name = self.images.engine()
        if host.exec("docker", "image", "inspect", name, check=False).returncode == 0:
            return name
        command = ["docker", "exec", "-i", host.container.name, "docker", "load", "--quiet"]
        with self.images.engine_tar().open("rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise CommandFailed(host.name, ["docker", "load"], done)
        return name

    def publish_engine(self, registry: Host, release: str = "trixie") -> str:
        """Push the real llama.cpp server's image into a registry; return the name under which boxes pull it."""
        made = self.images.engine(release)
        registry.container.reload()
        (published,) = registry.container.ports[f"{REGISTRY_PORT}/tcp"]
        repository, _, version = made.rpartition("/")[2].partition(":")
        near = f"127.0.0.1:{published['HostPort']}/{repository}"
        self.client.images.get(made).tag(near, version)
        try:
            for part in self.client.images.push(near, version, stream=True, decode=True):
                if "error" in part:
                    raise DrafthouseError(
                        Problem(
                            code="program-failed",
                            where=registry.name,
                            found=str(part["error"]),
                            needed="a registry that takes the engine's image",
                            do="read /var/log/registry.log on it",
                        )
                    )
        finally:
            self.client.images.remove(f"{near}:{version}")
        return f"{registry.ip4}:{REGISTRY_PORT}/{repository}:{version}"

    def inventory(
        self,
        hosts: Iterable[Host] | Mapping[str, Iterable[Host]],
        group_vars: Mapping[str, Any] | None = None,
        like: str | None = None,
    ) -> Path:
        """Write an inventory of the hosts (or of groups of them), and return its folder.

        ``like``: the name of one of the project's inventories, whose variables for all hosts come first.
        """
        groups = dict(hosts) if isinstance(hosts, Mapping) else {"boxes": list(hosts)}
        folder = Path(tempfile.mkdtemp(prefix="inventory-", dir=self.folder))
        children = {
            group: {"hosts": {host.name: self._ansible_words(host) for host in members}}
            for group, members in groups.items()
        }
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}), "utf-8")
        # The lane's other tests are neighbours that do not end.
        variables: dict[str, Any] = {"benchmark_wait_s": 0}
        if like:
            variables |= yaml.safe_load((ROOT / "inventory" / like / "group_vars" / "all.yml").read_text("utf-8"))
        given = dict(group_vars or {})
        if like and "profile" in given:  # in place of the one that the inventory names
            given["drafthouse_profile"] = given.pop("profile")
        variables |= given
        (folder / "group_vars").mkdir()
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(variables), "utf-8")
        return folder

    def _ansible_words(self, host: Host) -> dict[str, Any]:
        # Ansible adds its own way of sharing a connection; its sockets must not outlive the addresses.
        words = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o IdentitiesOnly=yes"
        return {
            "ansible_host": host.ip4,
            "ansible_user": host.user,
            "ansible_port": host.port,
            "ansible_ssh_private_key_file": str(host.key),
            "ansible_ssh_common_args": words,
            "ansible_control_path_dir": str(self.folder / "cp"),
        }

    def play(self, playbook: str, inventory: Path, *words: str, timeout: float = PLAY_S, **variables: Any) -> Ended:
        """Run a playbook from the clone's root with extra variables, as a person does."""
        command, environment = play_words(playbook, inventory, *words, **variables)
        began, used = time.monotonic(), cpu_seconds()
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        print(done.stdout, done.stderr)
        return Ended(done.returncode, done.stdout + done.stderr, time.monotonic() - began, cpu_seconds() - used)

    def _remove_all(self) -> None:
        with ThreadPoolExecutor(4) as several:
            list(several.map(Host.remove, list(self.hosts.values())))
        for container in self.client.containers.list(all=True, filters={"label": f"{LABEL}={self.name}"}):
            container.remove(force=True, v=True)
        for network in self.client.networks.list(filters={"label": f"{LABEL}={self.name}"}):
            network.remove()
        self.client.close()


def play_words(playbook: str, inventory: Path, *words: str, **variables: Any) -> tuple[list[str], dict[str, str]]:
    """The command that runs a playbook, and its environment; it is to be run in the clone's root."""
    command = [
        str(BIN / "ansible-playbook"),
        *playbook.split(),
        "-i",
        str(inventory),
        "-e",
        json.dumps(variables),
        *words,
    ]
    environment = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    return command, environment


def cgroup_binds() -> list[str]:
    """The binds through which systemd in a host makes its groups below its own container's."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [f"{CGROUPS}:{CGROUPS}:rw"]
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()]
    return [f"{path}:{path}:rw" for path in mounted if Path(path).parent == CGROUPS]


def cgroup_tmpfs() -> dict[str, str]:
    """What the hierarchies of cgroup v1 hang from.

    It is the host's own: systemd makes folders in it and then remounts it read-only, for whoever else shares it.
    """
    return {} if (CGROUPS / "cgroup.controllers").exists() else {str(CGROUPS): ""}


def engine(say: Say = print) -> Any:
    """A client of this machine's container engine, which is started where none runs. Raises DrafthouseError."""
    if client := _reached():
        return client
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        raise DrafthouseError(
            Problem(
                code="program-failed",
                where="tests/hosts",
                found="no container engine answers, and none can be started here",
                needed="Docker for the test hosts",
                do="start Docker, or install it (apt-get install docker.io docker-cli) and run as root",
            )
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    log = CACHE / "dockerd.log"
    with log.open("ab") as output:
        # Niced, and so is every container that it starts: tests beside it measure times.
        process = subprocess.Popen(
            ["nice", "-n", "19", "dockerd"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if client := _reached():
            _STARTED.append(process)
            say(f"dockerd: started for the test hosts, its log is {log.relative_to(ROOT)}")
            return client
        time.sleep(_LOOK_S)
    raise DrafthouseError(
        Problem(
            code="program-failed",
            where="dockerd",
            found="it does not start",
            needed="Docker for the test hosts",
            do="read its last words:\n" + log.read_text("utf-8", "replace")[-2000:],
        )
    )


def stop_engine() -> None:
    """Stop the container engine if this process started it, unless others have hosts running on it by now."""
    while _STARTED:
        process = _STARTED.pop()
        client = _reached()
        if client and not client.containers.list():
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(START_S)


def _reached() -> Any | None:
    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except (docker.errors.DockerException, OSError):
        return None
    return client


def remove_abandoned(client: Any) -> None:
    """Remove hosts and networks whose process is gone: a killed test run cannot clean up after itself."""
    for container in client.containers.list(all=True, filters={"label": OWNER}):
        if not _alive(container.labels[OWNER]):
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True, v=True)
    for network in client.networks.list(filters={"label": OWNER}):
        if not _alive(network.attrs["Labels"][OWNER]):
            with contextlib.suppress(docker.errors.APIError):
                network.remove()


def _alive(process: str) -> bool:
    return Path(f"/proc/{process}").exists()


def _packed(files: Mapping[str, bytes]) -> bytes:
    """Files of root's, with the folders above them, as a tar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            for folder in reversed(Path(name).parents[:-1]):
                entry = tarfile.TarInfo(str(folder))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o700
                tar.addfile(entry)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
