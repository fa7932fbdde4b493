"""Host addresses: how a URL writes them, and to which hosts a redirect, or a URL in a response, may lead.

A server chooses its redirects. Followed without a check, one could reach hosts that only this machine can reach: a
cloud's metadata service, a router, a server on loopback. So a redirect may lead to public addresses only, and to the
host that the user configured.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

#: The URL scheme of an hf_xet store in a folder of this machine; only a hub on loopback may name one.
_FOLDER = "local"
#: NAT64 and 6to4: IPv6 addresses that contain an IPv4 address, possibly a private one, to which a relay sends.
_RELAYED = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "2002::/16")))


def in_brackets(address: str) -> str:
    """A host as a URL writes it: an IPv6 address in brackets (RFC 3986, section 3.2.2)."""
    if ":" not in address or address.startswith("["):
        return address
    return f"[{address}]"


def may_lead_to(url: str, configured: str) -> bool:
    """True if a response from the server at the URL ``configured`` may lead to ``url``, by the first case that fits.

    1. No valid URL: no.
    2. A folder of this machine: only from a server on loopback, named by its address.
    3. Another scheme than http and https, or no host: no.
    4. The host of ``configured``: yes.
    5. A name that does not resolve: yes. A proxy may resolve it, and without a proxy it cannot be opened.
    6. Else only if all addresses of the host are public.
    """
    try:
        target = urlsplit(url)
        origin = urlsplit(configured)
        host = target.hostname
        port = target.port
    except ValueError:
        return False
    if target.scheme == _FOLDER:
        return _is_address(origin.hostname or "") and ipaddress.ip_address(origin.hostname or "").is_loopback
    if target.scheme not in ("http", "https") or not host:
        return False
    if host == origin.hostname:
        return True
    try:
        addresses = socket.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)  # any port will do
    except (OSError, UnicodeError):
        return not _is_address(host)
    # An entry ends with the socket address: IP address and port. Behind % is an interface.
    return all(_is_public(str(entry[4][0]).partition("%")[0]) for entry in addresses)


def _is_public(text: str) -> bool:
    """True if an IP address is public; an IPv6 address in `_RELAYED` is not."""
    address = ipaddress.ip_address(text)
    return address.is_global and not any(address in network for network in _RELAYED)


def _is_address(host: str) -> bool:
    """True if ``host`` is an IP address, False for a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
