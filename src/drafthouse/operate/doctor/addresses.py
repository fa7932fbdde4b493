"""A box's addresses: who listens on which, and under which others reach it. Standard library only: read on the box."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from pathlib import Path

from ...core.files import text_in
from ...core.procfs import listeners

_NOT_OUTSIDE = re.compile(r"lo|docker\d+|br-|veth|virbr")


def listening(port: int, proc: str = "/proc") -> list[str]:
    """The addresses on which somebody listens on a TCP port, as people write them."""
    return sorted({_address(digits) for digits, listens, _ in listeners(Path(proc)) if listens == port})


def _address(digits: str) -> str:
    """An address of /proc/net/tcp: words of 32 bits, each in the processor's own order."""
    words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def addresses() -> list[str]:
    """The box's global IPv6 addresses, but for those of bridges to its own containers."""
    found = []
    for line in text_in("/proc/net/if_inet6").splitlines():
        digits, _, _, scope, _, interface = line.split()
        if scope == "00" and not _NOT_OUTSIDE.match(interface):
            found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found
