"""A host's addresses in a private network, by the interface that has them, and its InfiniBand adapters.

Standard library only: it runs on a bare box.
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
_NAME_BYTES, _ENTRY_BYTES, _MOST = 16, 40, 256
_ADAPTERS = Path("/sys/class/infiniband")


def private_network(subnet: str, adapters: Path = _ADAPTERS) -> PrivateNetwork:
    """The host's IPv4 addresses inside ``subnet``, and its adapters whose link is up."""
    network = ipaddress.IPv4Network(subnet)
    inside = {address: name for address, name in _addresses().items() if ipaddress.IPv4Address(address) in network}
    return {"addresses": inside, "infiniband": _active(adapters)}


def _addresses() -> dict[str, str]:
    """All IPv4 addresses of this machine with the interface of each (netdevice(7): SIOCGIFCONF)."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _MOST))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        wanted = struct.pack("iL", len(entries), entries.buffer_info()[0])
        length, _ = struct.unpack("iL", fcntl.ioctl(asked, _SIOCGIFCONF, wanted))
    found = {}
    for start in range(0, length, _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES].tobytes()
        # An alias (eth0:1) is the interface's own.
        name = entry[:_NAME_BYTES].split(b"\0", 1)[0].decode().split(":")[0]
        found[socket.inet_ntoa(entry[_NAME_BYTES + 4 : _NAME_BYTES + 8])] = name
    return found


def _active(adapters: Path) -> list[str]:
    """The adapters with a port that the kernel calls active."""
    return sorted({state.parents[2].name for state in adapters.glob("*/ports/*/state") if "ACTIVE" in text_in(state)})
