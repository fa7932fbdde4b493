"""A host's IPv4 addresses in a private network, with their interfaces, and its InfiniBand adapters.

Standard library only: it runs before Drafthouse has installed anything on the host.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from ..core.files import text_in
from .box_types import PrivateNetwork

_SIOCGIFCONF = 0x8912
# Sizes of struct ifreq on 64-bit Linux: the interface's name, and one entry.
_NAME_BYTES, _ENTRY_BYTES = 16, 40
_MAX_ENTRIES = 256  # far more addresses than a host has
_ADAPTERS = Path("/sys/class/infiniband")


def private_network(subnet: str, adapters: Path = _ADAPTERS) -> PrivateNetwork:
    """The host's IPv4 addresses inside ``subnet`` (CIDR), and its InfiniBand adapters whose link is up."""
    network = ipaddress.IPv4Network(subnet)
    inside = {address: name for address, name in _interfaces().items() if ipaddress.IPv4Address(address) in network}
    return {"addresses": inside, "infiniband": _active_adapters(adapters)}


def _interfaces() -> dict[str, str]:
    """Interface name by IPv4 address, for all addresses of this host (netdevice(7): SIOCGIFCONF)."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _MAX_ENTRIES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # struct ifconf: the length of the buffer and its address. The kernel fills the buffer, and returns the length.
        address, _ = entries.buffer_info()
        request = struct.pack("iL", len(entries), address)
        length, _ = struct.unpack("iL", fcntl.ioctl(sock, _SIOCGIFCONF, request))
    interfaces = {}
    for start in range(0, length, _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES].tobytes()
        # An alias (eth0:1) counts as its interface (eth0).
        name = entry[:_NAME_BYTES].split(b"\0", 1)[0].decode().split(":")[0]
        # The name is followed by a sockaddr_in: family and port (2 bytes each), then the address.
        interfaces[socket.inet_ntoa(entry[_NAME_BYTES + 4 : _NAME_BYTES + 8])] = name
    return interfaces


def _active_adapters(adapters: Path) -> list[str]:
    """Names of the adapters that have a port in the kernel's state ACTIVE."""
    return sorted({state.parents[2].name for state in adapters.glob("*/ports/*/state") if "ACTIVE" in text_in(state)})
