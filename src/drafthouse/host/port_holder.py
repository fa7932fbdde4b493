"""Detect a foreign program on the port that an engine needs. Standard library only: it runs on the served box."""

from __future__ import annotations

import time
from pathlib import Path

from ..core.errors import Problem
from ..serving.containers import published_ports
from .box_facts import listener_of
from .box_types import Listener

_PROXY = "docker-proxy"  # Docker's program that listens on a published port
_PROXY_S = 10.0  # for how long it may listen before its container runs, or after it ended
_POLL_S = 0.5


def port_taken(port: int | str, listener: Listener, host: str, where: str = "") -> Problem:
    """The problem that ``listener``, a program that Drafthouse does not run, uses a port of the engine on ``host``."""
    program = listener["command"]
    if listener["pid"]:
        program = f"pid {listener['pid']}: {program}"
    found = f"port {port} is taken ({program})"
    needed = f"port {port} free on {host} for the engine"
    do = "stop that program, or choose another port: -e drafthouse_port=8100"
    return Problem("port-taken", found, needed, do, where)


def foreign_listener(port: int, host: str, home: str | Path, proxy_s: float = _PROXY_S) -> Problem | None:
    """The problem that a foreign program listens on ``port``; None if nothing does, or a program of Drafthouse.

    ``home`` is Drafthouse's folder; ``host`` is named in the problem. docker-proxy on a port that no running container
    of ours publishes counts as foreign only after ``proxy_s`` seconds. Until then it may belong to a container of ours
    that has just ended.
    """
    deadline = time.monotonic() + proxy_s
    while True:
        listener = listener_of(port, str(Path(home) / "supervisor" / "supervisord.pid"), published_ports())
        if listener is None or listener["ours"]:
            return None
        if _PROXY not in listener["command"].partition(" ")[0] or time.monotonic() > deadline:
            return port_taken(port, listener, host)
        time.sleep(_POLL_S)
