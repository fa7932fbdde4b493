"""Test which TCP ports of another machine accept a connection. Standard library only, Python 3.10."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_MOST_AT_ONCE = 16  # connection attempts


def probe_ports(doors: Sequence[Mapping[str, Any]], timeout_s: float = 2.0) -> list[dict[str, Any]]:
    """Each door (a mapping with address and port) with two more keys: ``answers`` and ``source``.

    ``answers`` is True if it accepts a connection. ``source`` is this machine's address on that route, '' without one.
    """
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        return list(pool.map(lambda door: _probe(door, timeout_s), doors))


def _probe(door: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """The door with the two keys of `probe_ports`."""
    address = str(door["address"])
    port = int(door["port"])
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            source, *_ = connection.getsockname()
            return {**door, "answers": True, "source": str(source)}
    except OSError:
        return {**door, "answers": False, "source": _source(address, port)}


def _source(address: str, port: int) -> str:
    """The source address of a packet to that address, from a connected UDP socket, which sends no packet.

    '' if there is no route to it.
    """
    try:
        family, kind, _, _, destination = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as udp_socket:
            udp_socket.connect(destination)
            source, *_ = udp_socket.getsockname()
            return str(source)
    except OSError:
        return ""
