"""Head and follower of one model: real processes, real connections, and what becomes of one when the other goes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drafthouse.core.procfs import is_gone
from drafthouse.profiles.workspace import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.processes

PROGRAM = ROOT / "src" / "drafthouse" / "serving" / "together.py"
DIGEST, MEMBERS = "abc123", "127.0.0.1,127.0.0.2"
# An engine of two processes: the second is what a worker is, and would outlive the first.
ENGINE = """#!/usr/bin/env bash
# together: {digest}
sleep 1000 & echo "$! $$" > {pids}.new; mv {pids}.new {pids}; wait
"""
WAITS_S = 60.0


class Side:
    """A head or a follower that runs, with the pids of its engine in a file."""

    def __init__(self, folder: Path, part: str, *words: str) -> None:
        self.pids_file, self.log = folder / f"{part}.pids", folder / f"{part}.log"
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen([sys.executable, str(PROGRAM), part, *words], stderr=stream)

    def pids(self) -> list[int]:
        """Wait for the engine, and return its processes."""
        until(self.pids_file.exists, f"the engine of {self.log.stem}: {self.log.read_text()}")
        return [int(word) for word in self.pids_file.read_text().split()]

    def forget(self) -> None:
        self.pids_file.unlink()


class Hosts:
    """Two addresses of loopback in place of two hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.sides: list[Side] = []
        self.arm("follow", DIGEST)

    def arm(self, part: str, digest: str, arm: str = "profile/baseline") -> Path:
        script = self.folder / part / arm / "serve.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(ENGINE.format(digest=digest, pids=self.folder / f"{part}.pids"))
        script.chmod(0o755)
        return script

    def lead(self, *, digest: str = DIGEST, arm: str = "profile/baseline", members: str = MEMBERS) -> Side:
        script = self.arm("lead", digest, arm)
        own = ["--address", "127.0.0.1", "--port", str(self.port), "--members", members]
        return self._start("lead", *own, str(script), "--", str(script))

    def follow(self) -> Side:
        own = ["--address", "127.0.0.2", "--port", str(self.port), "--head", "127.0.0.1"]
        return self._start("follow", *own, "--scripts", str(self.folder / "follow"))

    def _start(self, part: str, *words: str) -> Side:
        self.sides.append(Side(self.folder, part, *words))
        return self.sides[-1]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    for side in made.sides:
        side.process.terminate()
    for side in made.sides:
        side.process.wait(WAITS_S)


def test_a_follower_serves_with_each_life_of_its_head(hosts: Hosts) -> None:
    follower = hosts.follow()
    until(lambda: "waiting for the head" in follower.log.read_text(), "the follower")
    assert not follower.pids_file.exists()
    head = hosts.lead()
    first = follower.pids()
    head.process.send_signal(signal.SIGTERM)
    assert head.process.wait(WAITS_S) == 0
    until(lambda: all(map(is_gone, first)), "the end of the follower's engine")
    assert follower.process.poll() is None
    follower.forget()
    hosts.lead()
    assert not set(follower.pids()) & set(first)


def test_a_head_that_is_killed_takes_both_engines_with_it(hosts: Hosts) -> None:
    head, follower = hosts.lead(), hosts.follow()
    mine, theirs = head.pids(), follower.pids()
    head.process.kill()
    until(lambda: all(map(is_gone, theirs)), "the end of the follower's engine")
    # The kernel ends the head's first process; its workers are the engine's own to end.
    until(lambda: is_gone(mine[1]), "the end of the head's engine")
    os.kill(mine[0], signal.SIGKILL)


def test_a_follower_that_is_lost_ends_the_heads_engine(hosts: Hosts) -> None:
    head, follower = hosts.lead(), hosts.follow()
    mine, theirs = head.pids(), follower.pids()
    time.sleep(1.5)  # until it has given a sign of life
    os.kill(theirs[1], signal.SIGKILL)
    assert head.process.wait(WAITS_S) == 1
    assert all(map(is_gone, mine))
    assert "follower 127.0.0.2 disconnected" in head.log.read_text()
    assert "ended with status" in follower.log.read_text()


def test_a_head_that_stands_still_counts_as_gone(hosts: Hosts) -> None:
    head, follower = hosts.lead(), hosts.follow()
    theirs = follower.pids()
    head.process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: all(map(is_gone, theirs)), "the end of the follower's engine")
    finally:
        head.process.send_signal(signal.SIGCONT)
    assert "was silent" in follower.log.read_text()


def test_an_engine_that_ends_by_itself_ends_its_head_with_the_same_status(hosts: Hosts) -> None:
    head = hosts.lead()
    mine = head.pids()
    os.kill(mine[1], signal.SIGKILL)
    assert head.process.wait(WAITS_S) == 128 + signal.SIGKILL
    until(lambda: is_gone(mine[0]), "the end of its worker")


@pytest.mark.parametrize("arm", ["profile/baseline", "profile/speculative"])
def test_a_follower_serves_nothing_else_than_its_head(hosts: Hosts, arm: str) -> None:
    follower = hosts.follow()
    hosts.lead(arm=arm, digest="def456")
    until(lambda: "run site.yml on all hosts" in follower.log.read_text(), "the follower's word")
    assert not follower.pids_file.exists()


def test_who_is_no_member_is_told_nothing(hosts: Hosts) -> None:
    head = hosts.lead(members="127.0.0.1,127.0.0.3")
    head.pids()
    with socket.create_connection(("127.0.0.1", hosts.port), 10, ("127.0.0.2", 0)) as stranger:
        stranger.settimeout(WAITS_S)
        assert stranger.recv(100) == b""
    assert head.process.poll() is None


def test_a_port_that_is_taken_is_said(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", hosts.port)):
        head = hosts.lead()
        assert head.process.wait(WAITS_S) == 1
    assert "cannot listen at 127.0.0.1" in head.log.read_text()
