"""Keeps the engines of one model's hosts together: what the head serves its followers serve, and nobody stays alone.

    together.py lead --address A --port P --members A,B PROFILE/ARM/serve.sh -- COMMAND...
    together.py follow --head A --port P --address B --scripts FOLDER

An engine that spans hosts may go on for ever when the host that it works for has gone (vLLM issue 32136), and hold its
GPUs. So each host has this program as its engine's parent. The head's says over one connection a follower which arm it
serves, and both give a sign of life every second. A connection that ends, or is silent, ends the engines on both sides.
The follower then waits for the next head, and whoever holds the head running starts it again.

One file on its own, standard library only, Python 3.10: it lies on the box under the hash of its text, so that a
command that names it changes only with it.
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

SILENT_S = 6.0
BEAT_S = 1.0
# What an engine may take to end before it is killed: together with the silence less than a quarter of a minute.
END_S = 6.0
# Asked to end in peace it may finish what it does; supervisord kills after 30 s.
STOP_S = 25.0
_AGAIN_S = 0.5
_AFTER_A_CRASH_S = 3.0
_HELLO_BYTES = 4096
_MARK = "# together: "
_PR_SET_PDEATHSIG = 1


class Ended(Exception):
    """Somebody asks this program to end."""


def told(text: str) -> None:
    """Write a line for the log."""
    print(f"together: {text}", file=sys.stderr, flush=True)


class Engine:
    """The engine's processes: one group, which goes as a whole."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_us)  # noqa: PLW1509 (no threads)

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def end(self, grace_s: float) -> None:
        """Ask it to end, and kill what is left of it after so long."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _end_with_us() -> None:
    """Have the kernel end the engine should this program be killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


class Peer:
    """The other end of a connection. ``joined``: it has given a sign of life."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        self.connection, self.name, self.joined, self._heard = connection, name, False, time.monotonic()

    def lost(self) -> str:
        """Give and take a sign of life; return why the peer is lost, '' while it is there."""
        try:
            with contextlib.suppress(BlockingIOError):
                self.connection.send(b".")
            with contextlib.suppress(BlockingIOError):
                if not self.connection.recv(_HELLO_BYTES):
                    return "disconnected"
                self.joined, self._heard = True, time.monotonic()
        except OSError as error:
            return f"disconnected ({error.strerror or error})"
        silent_s = time.monotonic() - self._heard
        return f"was silent for {silent_s:.0f} s" if silent_s > SILENT_S else ""


def lead(given: argparse.Namespace) -> int:
    """Run the head's engine until it ends, or a follower is lost; return the exit status."""
    members = set(given.members.split(","))
    with socket.create_server((given.address, given.port)) as server:
        server.setblocking(False)
        engine, peers, status = Engine(given.command), list[Peer](), None
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
                            told(f"follower {peer.name} {why}: ending this engine")
                            engine.end(END_S)
                            return 1
        except Ended:
            engine.end(STOP_S)
            return 0
        finally:
            # Its workers, should only its first process have ended. Then the followers are told.
            engine.end(0)
            for peer in peers:
                peer.connection.close()
    return 1


def _new_peers(server: socket.socket, members: set[str], hello: bytes) -> Iterator[Peer]:
    """Yield those who have come, and tell them what is served; who is no member is shown the door."""
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
    """Serve what the head serves, for as long as it does, until somebody ends this program; return the exit status."""
    waited = False
    try:
        while True:
            try:
                connection = socket.create_connection((given.head, given.port), 2.0, (given.address, 0))
            except OSError:
                if not waited:
                    told(f"waiting for the head at {given.head}:{given.port}")
                waited = True
                time.sleep(_AGAIN_S)
                continue
            waited = False
            with connection:
                _follow_one(connection, Path(given.scripts), given.head)
    except Ended:
        return 0


def _follow_one(connection: socket.socket, scripts: Path, head: str) -> None:
    """Serve with one life of the head's engine."""
    connection.settimeout(SILENT_S)
    try:
        hello = json.loads(connection.makefile("rb").readline(_HELLO_BYTES))
        arm, digest = str(hello["arm"]), str(hello["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        time.sleep(_AGAIN_S)
        return
    script = scripts / arm / "serve.sh"
    if not _is_same(script, arm, digest):
        told(f"the head serves {arm} ({digest}), but {script} differs: run site.yml on all hosts")
        time.sleep(_AFTER_A_CRASH_S)
        return
    told(f"the head serves {arm}: starting")
    peer, engine = Peer(connection, head), Engine([str(script)])
    try:
        for _ in _beats():
            if engine.status is not None:
                told(f"the engine ended with status {engine.status}")
                break
            if why := peer.lost():
                told(f"the head {why}: ending the engine")
                engine.end(END_S)
                return
    except Ended:
        engine.end(STOP_S)
        raise
    finally:
        engine.end(0)
    # The head learns of it first: it may be what crashes at every start.
    connection.close()
    time.sleep(_AFTER_A_CRASH_S)


def _served(script: Path) -> tuple[str, str]:
    """Which arm a script is, by its two folders, and the hash that stands in it."""
    marked = [line for line in script.read_text("utf-8").splitlines() if line.startswith(_MARK)]
    return "/".join(script.resolve().parts[-3:-1]), marked[0].removeprefix(_MARK) if marked else ""


def _is_same(script: Path, arm: str, digest: str) -> bool:
    """Tell whether the head's arm is there with the very same settings."""
    if ".." in arm or arm.startswith("/") or not digest.isalnum():
        return False
    try:
        return f"{_MARK}{digest}\n" in script.read_text("utf-8")
    except OSError:
        return False


def _beats() -> Iterator[None]:
    while True:
        yield
        time.sleep(BEAT_S)


def _asked_to_end(number: int, frame: FrameType | None) -> None:
    # Once is enough: what follows is the end.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    raise Ended


def main(words: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Keep the engines of one model's hosts together.")
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("lead", help="run the head's engine")
    two = parts.add_parser("follow", help="serve what the head serves")
    for part in (one, two):
        part.add_argument("--address", required=True, help="this host's address in the private subnet")
        part.add_argument("--port", type=int, required=True, help="the head's port")
    one.add_argument("--members", required=True, help="addresses of all hosts, separated by commas")
    one.add_argument("script", help="the script that runs this; it has the hash of what all hosts share")
    one.add_argument("command", nargs="+")
    two.add_argument("--head", required=True)
    two.add_argument("--scripts", required=True)
    given = parser.parse_args(words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _asked_to_end)
    try:
        return lead(given) if given.part == "lead" else follow(given)
    except OSError as error:
        told(f"cannot listen at {given.address}:{given.port}: {error.strerror or error}")
        return 1
    except Ended:
        return 0


if __name__ == "__main__":
    sys.exit(main())
