"""Hosts out of this machine's own namespaces: net, mount, pid, uts and ipc, a /dev/shm each, one bridge between them.

They share the file system but for /tmp/ray, and reach each other and nobody else: the bridge is in a network namespace
of its own, where no Docker filters what is forwarded. Everything that runs in one ends with it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SUBNET = "10.77.0.0/24"
_START_S = 60.0


@dataclass(frozen=True)
class Host:
    """A host: its name, its address, and the process whose namespaces it is."""

    name: str
    address: str
    pid: int

    def enter(self, **environment: str) -> str:
        """The shell's words before a command that runs there."""
        words = ["nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", "-i", "--", "env"]
        return shlex.join([*words, *(f"{name}={value}" for name, value in environment.items())])

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        command = [*shlex.split(self.enter()), *words]
        return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a command there; what it prints goes to ``log``."""
        with log.open("ab") as stream:
            return subprocess.Popen([*shlex.split(self.enter()), *words], stdout=stream, stderr=subprocess.STDOUT)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


@contextmanager
def hosts(number: int) -> Iterator[list[Host]]:
    """Make so many hosts, and remove them; skips where the test may not."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    tag = f"dhf{os.getpid() % 100_000}"
    switch = f"{tag}s"
    anchors: list[subprocess.Popen[bytes]] = []
    try:
        try:
            _ip("netns", "add", switch)
            _ip("-netns", switch, "link", "add", "bridge", "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no bridge can be made here: {error.stderr.decode().strip()}")
        _ip("-netns", switch, "link", "set", "bridge", "up")
        found = []
        for place in range(1, number + 1):
            name, address = f"{tag}n{place}", f"10.77.0.{place}"
            _ip("netns", "add", name)
            _ip("-netns", switch, "link", "add", f"port{place}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-netns", switch, "link", "set", f"port{place}", "master", "bridge", "up")
            for words in (["addr", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
                _ip("-netns", name, *words)
            _ip("-netns", name, "link", "set", "lo", "up")
            # Ray keeps a host's sockets below /tmp.
            own = " && ".join(f"mkdir -p {path} && mount -t tmpfs tmpfs {path}" for path in ("/dev/shm", "/tmp/ray"))
            inside = f"{own} && hostname node{place} && exec sleep infinity"
            unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
            anchors.append(subprocess.Popen(["ip", "netns", "exec", name, *unshare, "sh", "-c", inside]))
            found.append(Host(f"node{place}", address, _inside(anchors[-1].pid)))
        yield found
    finally:
        for anchor in anchors:
            anchor.kill()
            anchor.wait(60)
        for name in (*(f"{tag}n{place}" for place in range(1, number + 1)), switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _inside(pid: int) -> int:
    """The process that sleeps in the new namespaces, below the one that made them."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if below and Path(f"/proc/{below[0]}/comm").read_text().strip() == "sleep":
            return int(below[0])
        time.sleep(0.05)
    raise AssertionError("the namespaces were not made")
