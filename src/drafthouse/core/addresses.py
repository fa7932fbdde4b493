"""Addresses of hosts: how a URL writes them, and which ones another's answer may send us to.

Those are the public ones, and the host that the user configured.

A redirect is text of whoever answers. Followed blindly it reaches what only this machine reaches: a cloud's metadata
service, a router, a server on loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

#: A store of hf_xet that is a folder of this machine: only a hub on this machine may name one.
_FOLDER = "local"
#: NAT64 and 6to4: a relay unpacks the address of IPv4 in them, which may be anybody's.
_RELAYED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "2002::/16")))


def in_brackets(address: str) -> str:
    """A host as it stands in a URL: an IPv6 address in brackets (RFC 3986, section 3.2.2)."""
    if ":" not in address or address.startswith("["):
        return address
    return f"[{address}]"


def may_lead_to(url: str, configured: str) -> bool:
    """Tell whether an answer of the host of ``configured`` may lead to ``url``.

    A host that has no address here is allowed: behind a proxy only the proxy knows it, and without one nothing opens.
    """
    try:
        wanted, own = urlsplit(url), urlsplit(configured)
        host, port = wanted.hostname, wanted.port
    except ValueError:
        return False
    if wanted.scheme == _FOLDER:
        return _is_address(own.hostname or "") and ipaddress.ip_address(own.hostname or "").is_loopback
    if wanted.scheme not in ("http", "https") or not host:
        return False
    if host == own.hostname:
        return True
    try:
        found = socket.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return not _is_address(host)
    return all(_is_public(str(entry[4][0]).partition("%")[0]) for entry in found)


def _is_public(text: str) -> bool:
    """Tell whether an address is a public one; those of IPv6 that carry one of IPv4 to a relay are none."""
    address = ipaddress.ip_address(text)
    return address.is_global and not any(address in network for network in _RELAYED)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
