"""Test which TCP ports of another machine accept a connection. Standard library only, Python 3.10."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MOST_AT_ONCE = 16


def probe_ports(doors: Sequence[Mapping[str, Any]], timeout_s: float = 2.0) -> list[dict[str, Any]]:
    """Each door (a mapping with address and port) with two more keys: ``answers`` and ``source``.

    ``answers`` is True if it accepts a connection. ``source`` is this machine's address on that route, '' without one.
    """
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        return list(pool.map(lambda door: _probe(door, timeout_s), doors))


def _probe(door: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    address, port = str(door["address"]), int(door["port"])
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            return {**door, "answers": True, "source": str(connection.getsockname()[0])}
    except OSError:
        return {**door, "answers": False, "source": _source(address, port)}


def _source(address: str, port: int) -> str:
    """The source address of a packet to that address, from a connected UDP socket, which sends no packet."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as udp_socket:
            udp_socket.connect(target)
            return str(udp_socket.getsockname()[0])
    except OSError:
        return ""
