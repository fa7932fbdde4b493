"""Reads a box's listening and global IPv6 addresses from /proc. Standard library only: it runs on the box."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from pathlib import Path

from ...core.files import text_in
from ...core.procfs import listeners

# Beginnings of the names of interfaces that lead to this machine itself, to containers or to virtual machines.
_INTERNAL_INTERFACE = re.compile(r"lo|docker\d+|br-|veth|virbr")


def listening(port: int, proc: str = "/proc") -> list[str]:
    """The addresses on which a program listens on TCP ``port``, as text ("127.0.0.1", "::1")."""
    return sorted({_address(digits) for digits, listens, _ in listeners(Path(proc)) if listens == port})


def _address(digits: str) -> str:
    """The text of an address in /proc/net/tcp: hexadecimal 32-bit words in the processor's byte order.

    An IPv4 address that an IPv6 socket listens on (::ffff:127.0.0.1) is written as IPv4.
    """
    words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
    address = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def addresses() -> list[str]:
    """The box's global IPv6 addresses, without those of loopback and of bridges to containers."""
    global_addresses = []
    # A line: address, index, prefix length, scope (00: global), flags, interface.
    for line in text_in("/proc/net/if_inet6").splitlines():
        digits, _, _, scope, _, interface = line.split()
        if scope == "00" and not _INTERNAL_INTERFACE.match(interface):
            global_addresses.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return global_addresses
