"""Processes of this machine that belong to the measurement: the engines and the client that sends the requests."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from .client import Endpoint
from .machine_state import MachineState, engine_pids, read_cpu

_DEFAULT_PORTS = {"http": 80, "https": 443}


def own_pids(endpoints: Sequence[Endpoint], state: MachineState) -> set[int]:
    """Pids of the engines that listen on the ports of ``endpoints``, and of this client.

    ``state`` holds the machine's processes. The endpoints' hosts are not looked at: see `local_endpoints`.
    """
    ports = []
    for endpoint in endpoints:
        url = urlsplit(endpoint.base_url)
        ports.append(url.port or _DEFAULT_PORTS.get(url.scheme, 0))  # nothing listens on port 0
    return engine_pids(ports, state.processes) | {os.getpid()}


def local_engine_pids(endpoints: Sequence[Endpoint]) -> set[int]:
    """Pids of the engines that run on this machine and whose processes this user may inspect."""
    return own_pids(local_endpoints(endpoints), read_cpu()) - {os.getpid()}


def local_endpoints(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints whose address belongs to this machine; the local end of a tunnel counts as local too."""
    return [endpoint for endpoint in endpoints if _is_local(urlsplit(endpoint.base_url).hostname or "")]


def _is_local(host: str) -> bool:
    """True if the first address of ``host`` is one of this machine; False also for a host without an address."""
    try:
        family, socket_type, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket_type) as probe:
            probe.bind(address)  # port 0 is any free port; only an address of this machine can be bound
    except OSError:
        return False
    return True
