"""Asks a server that is measured, or about to be: always straight, like the requests themselves (`client.py`).

A proxy from the environment would read the key, answer for a server that is gone, and seldom reaches this machine.
"""

from __future__ import annotations

import functools
import ssl
import urllib.request


@functools.cache
def opener(ca_pem: str | None = None) -> urllib.request.OpenerDirector:
    """Return what opens a server's addresses, whatever `http_proxy` says; it raises what `urlopen` raises.

    ``ca_pem`` are the certificates that are trusted in place of the system's.
    """
    trust = [urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=ca_pem))] if ca_pem else []
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *trust)
