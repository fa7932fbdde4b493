"""Start and end the engines of several hosts together, which serve one model: those of the head and of its followers.

    together.py lead --address A --port P --members A,B PROFILE/ARM/serve.sh -- COMMAND...
    together.py follow --head A --port P --address B --scripts FOLDER

A follower's engine may run on for ever, and hold its GPUs, when the head has gone (vLLM issue 32136). So on each host
this program is the engine's parent. The head tells each follower over a connection which arm (baseline or speculative)
it serves; then both send a heartbeat every second. When a connection ends or is silent, both sides end their engines.
The followers then wait for the next head, which the supervisor of its host starts.

One file without imports from Drafthouse, standard library only, Python 3.10. On a host its name has the version of the
messages that heads and followers exchange (`profiles/several_hosts.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

SILENT_S = 6.0  # seconds without a heartbeat, until a peer counts as lost
BEAT_S = 1.0  # seconds between two heartbeats
# Seconds from SIGTERM to SIGKILL after a peer was lost. With SILENT_S it is less than 15 s.
END_S = 6.0
# Seconds from SIGTERM to SIGKILL after a normal stop: requests may finish. supervisord kills after 30 s.
STOP_S = 25.0
_RETRY_S = 0.5  # seconds until a follower connects again
_AFTER_A_CRASH_S = 3.0  # the same after an engine that ended by itself, or a head that serves something else
_HELLO_BYTES = 4096  # at most, in the head's first message
_MARK = "# together: "  # begins the line of a start script with the hash of the settings that all hosts share
_PR_SET_PDEATHSIG = 1  # from Linux's sys/prctl.h


class Ended(Exception):
    """A signal asks this program to end."""


def log(text: str) -> None:
    """Write a line to the log, which is stderr."""
    print(f"together: {text}", file=sys.stderr, flush=True)


class Engine:
    """The engine's processes, which are one process group."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent)  # noqa: PLW1509 (no threads)

    @property
    def status(self) -> int | None:
        """The exit status of the engine, None while it runs."""
        return self._process.poll()

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to the group and, after at most ``grace_s`` seconds, SIGKILL."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM to the engine if this program is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


class Peer:
    """The other host of a connection. ``joined``: it has sent a heartbeat."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.name = name
        self.joined = False
        self._heard = time.monotonic()

    def lost(self) -> str:
        """Send a heartbeat and read the peer's; return why the peer is lost, '' if it is not."""
        try:
            with contextlib.suppress(BlockingIOError):
                self.connection.send(b".")
            with contextlib.suppress(BlockingIOError):
                if not self.connection.recv(_HELLO_BYTES):
                    return "disconnected"
                self.joined = True
                self._heard = time.monotonic()
        except OSError as error:
            return f"disconnected ({error.strerror or error})"
        silent_s = time.monotonic() - self._heard
        return f"was silent for {silent_s:.0f} s" if silent_s > SILENT_S else ""


def lead(given: argparse.Namespace) -> int:
    """Run the head's engine until it ends, or a follower is lost; return the exit status.

    The engine's own if it ended by itself (128 + N after the signal N); 1 after the loss of a follower that had joined;
    0 after a signal to this program. Only addresses of ``given.members`` may connect.
    """
    members = set(given.members.split(","))
    with socket.create_server((given.address, given.port)) as server:
        server.setblocking(False)
        engine = Engine(given.command)
        peers: list[Peer] = []
        arm, digest = _served(Path(given.script))
        hello = json.dumps({"arm": arm, "digest": digest}).encode() + b"\n"
        try:
            for _ in _beats():
                status = engine.status
                if status is not None:
                    return status if status >= 0 else 128 - status
                peers += _new_peers(server, members, hello)
                for peer in list(peers):
                    if why := peer.lost():
                        peers.remove(peer)
                        peer.connection.close()
                        if peer.joined:
                            log(f"follower {peer.name} {why}: ending this engine")
                            engine.end(END_S)
                            return 1
        except Ended:
            engine.end(STOP_S)
            return 0
        finally:
            # Kill workers that outlived the engine's first process; the closed connections then end the followers.
            engine.end(0)
            for peer in peers:
                peer.connection.close()
    return 1


def _new_peers(server: socket.socket, members: set[str], hello: bytes) -> Iterator[Peer]:
    """Yield the peers that have just connected, after sending ``hello``; close connections of other addresses.

    ``hello``: the head's first message, a line of JSON with the arm and the hash of its script.
    """
    while True:
        try:
            connection, address = server.accept()
        except (BlockingIOError, ConnectionError):
            return
        if address[0] not in members:
            connection.close()
            continue
        with contextlib.suppress(OSError):
            connection.sendall(hello)
        yield Peer(connection, address[0])


def follow(given: argparse.Namespace) -> int:
    """Run the follower's engine whenever the head serves, until a signal ends this program; return 0."""
    waited = False
    try:
        while True:
            try:
                connection = socket.create_connection((given.head, given.port), 2.0, (given.address, 0))
            except OSError:
                if not waited:
                    log(f"waiting for the head at {given.head}:{given.port}")
                waited = True
                time.sleep(_RETRY_S)
                continue
            waited = False
            with connection:
                _follow_once(connection, Path(given.scripts), given.head)
    except Ended:
        return 0


def _follow_once(connection: socket.socket, scripts: Path, head: str) -> None:
    """Run the follower's engine until it ends or the connection to the head is lost.

    Nothing is run without a valid first message, or if this host's script for that arm differs from the head's.
    """
    connection.settimeout(SILENT_S)
    try:
        hello = json.loads(connection.makefile("rb").readline(_HELLO_BYTES))
        arm = str(hello["arm"])
        digest = str(hello["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        time.sleep(_RETRY_S)
        return
    script = scripts / arm / "serve.sh"
    if not _is_same(script, arm, digest):
        log(f"the head serves {arm} ({digest}), but {script} differs: run site.yml on all hosts")
        time.sleep(_AFTER_A_CRASH_S)
        return
    log(f"the head serves {arm}: starting")
    peer = Peer(connection, head)
    engine = Engine([str(script)])
    try:
        for _ in _beats():
            if engine.status is not None:
                log(f"the engine ended with status {engine.status}")
                break
            if why := peer.lost():
                log(f"the head {why}: ending the engine")
                engine.end(END_S)
                return
    except Ended:
        engine.end(STOP_S)
        raise
    finally:
        engine.end(0)
    # Close before the pause, so that the head learns at once that this engine ended.
    connection.close()
    time.sleep(_AFTER_A_CRASH_S)


def _served(script: Path) -> tuple[str, str]:
    """The arm of a start script (PROFILE/ARM, its two folders), and the hash in its marked line ('' without one)."""
    marks = [line for line in script.read_text("utf-8").splitlines() if line.startswith(_MARK)]
    return "/".join(script.resolve().parts[-3:-1]), marks[0].removeprefix(_MARK) if marks else ""


def _is_same(script: Path, arm: str, digest: str) -> bool:
    """True if this host has the head's arm with the same hash. ``arm`` comes from the network: no path may escape."""
    if ".." in arm or arm.startswith("/") or not digest.isalnum():
        return False
    try:
        return f"{_MARK}{digest}\n" in script.read_text("utf-8")
    except OSError:
        return False


def _beats() -> Iterator[None]:
    """Yield at once, and then every `BEAT_S` seconds, for ever."""
    while True:
        yield
        time.sleep(BEAT_S)


def _asked_to_end(number: int, frame: FrameType | None) -> None:
    """Handle a signal. A second one is ignored: the cleanup after the first must not be interrupted."""
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    raise Ended


def main(words: Sequence[str] | None = None) -> int:
    """Run as a program; return the exit status."""
    parser = argparse.ArgumentParser(description="Keep the engines of one model's hosts together.")
    parts = parser.add_subparsers(dest="part", required=True)
    lead_parser = parts.add_parser("lead", help="run the head's engine")
    follow_parser = parts.add_parser("follow", help="serve what the head serves")
    for part in (lead_parser, follow_parser):
        part.add_argument("--address", required=True, help="this host's address in the private subnet")
        part.add_argument("--port", type=int, required=True, help="the head's port")
    lead_parser.add_argument("--members", required=True, help="addresses of all hosts, separated by commas")
    lead_parser.add_argument("script", help="the script that runs this; it has the hash of what all hosts share")
    lead_parser.add_argument("command", nargs="+")
    follow_parser.add_argument("--head", required=True)
    follow_parser.add_argument("--scripts", required=True)
    given = parser.parse_args(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _asked_to_end)
    try:
        return lead(given) if given.part == "lead" else follow(given)
    except OSError as error:
        log(f"cannot listen at {given.address}:{given.port}: {error.strerror or error}")
        return 1
    except Ended:
        return 0


if __name__ == "__main__":
    sys.exit(main())
