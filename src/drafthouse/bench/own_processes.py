"""Which processes are meant to be busy while a step is measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from .client import Endpoint
from .machine_state import MachineState, engine_pids, read_cpu

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


_DEFAULT_PORTS = {"http": 80, "https": 443}


def own_pids(endpoints: Sequence[Endpoint], state: MachineState) -> set[int]:
    """Return the processes that are meant to be busy: the engines, and this client."""
    ports = []
    for endpoint in endpoints:
        url = urlsplit(endpoint.base_url)
        ports.append(url.port or _DEFAULT_PORTS.get(url.scheme, 0))
    return engine_pids(ports, state.processes) | {os.getpid()}


def engines_here(endpoints: Sequence[Endpoint]) -> set[int]:
    """Return the engines' processes, of those that are asked on this machine and may be looked at."""
    here = [one for one in endpoints if (urlsplit(one.base_url).hostname or "") in _LOOPBACK]
    return own_pids(here, read_cpu()) - {os.getpid()}
