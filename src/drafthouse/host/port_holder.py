"""Who holds the port of an engine, where it is none of ours. Standard library only: it runs on the box."""

from __future__ import annotations

import time
from pathlib import Path

from ..core.errors import Problem
from ..serving.containers import published_ports
from .box_facts import listener_of
from .box_types import Listener

# Docker's program at a published port comes a moment before its container runs, and outlives it by one.
_PROXY, _PROXY_S, _AGAIN_S = "docker-proxy", 10.0, 0.5


def taken(port: int | str, listener: Listener, host: str, where: str = "") -> Problem:
    """The problem of a port that somebody else listens on."""
    who = listener["command"]
    if listener["pid"]:
        who = f"pid {listener['pid']}: {who}"
    return Problem(
        "port-taken",
        f"port {port} is taken ({who})",
        f"port {port} free on {host} for the engine",
        "stop that program, or choose another port: -e drafthouse_port=8100",
        where,
    )


def stranger_at(port: int, host: str, home: str | Path, proxy_s: float = _PROXY_S) -> Problem | None:
    """The problem where a program that is none of ours listens on ``port``; ``home`` is ours on the box.

    Docker's own program, at a port that no running container of ours publishes, is a stranger only where it stays for
    ``proxy_s`` seconds: that of a container of ours that just ended is gone by then.
    """
    until = time.monotonic() + proxy_s
    while True:
        listener = listener_of(port, str(Path(home) / "supervisor" / "supervisord.pid"), published_ports())
        if listener is None or listener["ours"]:
            return None
        if _PROXY not in listener["command"].partition(" ")[0] or time.monotonic() > until:
            return taken(port, listener, host)
        time.sleep(_AGAIN_S)
