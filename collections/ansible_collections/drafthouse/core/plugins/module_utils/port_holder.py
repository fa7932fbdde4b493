"""Who holds the port of an engine, where it is none of ours. Standard library only: it runs on the box."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .box import listener_of
from .problems import Problem
from .runtimes import published_ports


def taken(port: int | str, listener: Mapping[str, Any], host: str, where: str = "") -> Problem:
    """Return the problem of a port that somebody else listens on; ``listener`` is what `box.listener_of` says."""
    who = f"pid {listener['pid']}: {listener['command']}" if listener["pid"] else listener["command"]
    return Problem(
        f"port {port} is taken ({who})",
        f"port {port} free on {host}, for the engine",
        "end that program, or set another one: -e drafthouse_port=8100",
        where,
    )


def stranger_at(port: int, host: str, home: str | Path) -> Problem | None:
    """Return the problem where a program that is none of ours listens on ``port``; ``home`` is ours on the box."""
    listener = listener_of(port, str(Path(home) / "supervisor" / "supervisord.pid"), published_ports())
    return taken(port, listener, host) if listener and not listener["ours"] else None
