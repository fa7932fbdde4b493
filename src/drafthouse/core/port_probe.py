"""Knock on TCP ports of another machine. Standard library only, Python 3.10."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MOST_AT_ONCE = 16


def knock(doors: Sequence[Mapping[str, Any]], timeout_s: float = 2.0) -> list[dict[str, Any]]:
    """Each door {address, port, …} with ``answers``, and ``source``, the address of ours that leads there.

    ``source`` is '' where no way leads there at all.
    """
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        return list(pool.map(lambda door: _one(door, timeout_s), doors))


def _one(door: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    address, port = str(door["address"]), int(door["port"])
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            return {**door, "answers": True, "source": str(connection.getsockname()[0])}
    except OSError:
        return {**door, "answers": False, "source": _source(address, port)}


def _source(address: str, port: int) -> str:
    """The address that a packet to there would have; a datagram socket that is connected sends nothing."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except OSError:
        return ""
