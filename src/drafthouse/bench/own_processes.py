"""What of a measurement is on this machine: its engines, and the processes that are meant to be busy meanwhile."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from .client import Endpoint
from .machine_state import MachineState, engine_pids, read_cpu

_DEFAULT_PORTS = {"http": 80, "https": 443}


def own_pids(endpoints: Sequence[Endpoint], state: MachineState) -> set[int]:
    """The processes that are meant to be busy: the engines, and this client."""
    ports = []
    for endpoint in endpoints:
        url = urlsplit(endpoint.base_url)
        ports.append(url.port or _DEFAULT_PORTS.get(url.scheme, 0))
    return engine_pids(ports, state.processes) | {os.getpid()}


def engines_here(endpoints: Sequence[Endpoint]) -> set[int]:
    """The engines' processes, of those that are asked on this machine and may be looked at."""
    return own_pids(served_here(endpoints), read_cpu()) - {os.getpid()}


def served_here(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints whose address is one of this machine; a tunnel's end counts as the server."""
    return [endpoint for endpoint in endpoints if _is_here(urlsplit(endpoint.base_url).hostname or "")]


def _is_here(host: str) -> bool:
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as bound:
            bound.bind(place)  # any port: only an address of this machine can be had
    except OSError:
        return False
    return True
