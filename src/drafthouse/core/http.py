"""Asks a server that is measured, or about to be: always straight, like the requests themselves (`client.py`).

A proxy from the environment would read the key, answer for a server that is gone, and seldom reaches this machine.
Every answer is read whole before it is handed on, within the bounds of `bounded.py`: an engine that went mad must not
take the program with it.
"""

from __future__ import annotations

import functools
import http.client
import io
import ssl
import urllib.request
import urllib.response
from collections.abc import Iterator
from typing import Any

from .bounded import ENGINE_ANSWER_BYTES, ENGINE_READ_S, Deadline, TooMuch, joined, within

_PIECE = 64 << 10
_ERRORS = 400  # this status and above


@functools.cache
def opener(ca_pem: str | None = None) -> urllib.request.OpenerDirector:
    """What opens a server's addresses, whatever `http_proxy` says; it raises what `urlopen` raises.

    It speaks HTTP alone and follows no redirect: the key would go to whoever is named, and an address that only this
    machine reaches would be asked. ``ca_pem`` are the certificates that are trusted in place of the system's.
    """
    trust = ssl.create_default_context(cadata=ca_pem) if ca_pem else None
    straight = _Straight()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=trust),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Bounded(),
    ):
        straight.add_handler(handler)
    return straight


class _Straight(urllib.request.OpenerDirector):
    """Opens an address within a time over all, its headers included."""

    def open(self, fullurl: Any, data: Any = None, timeout: float | None = ENGINE_READ_S) -> Any:
        """The answer. Raises OSError."""
        seconds = max(ENGINE_READ_S, timeout or 0.0)
        try:
            return within(seconds, lambda: super(_Straight, self).open(fullurl, data, timeout))
        except TooMuch as error:
            raise TimeoutError(str(error)) from error


class _Bounded(urllib.request.BaseHandler):
    """Reads an answer's body, before what makes an error of its status (urllib's own handler has 1000)."""

    handler_order = 900

    def http_response(
        self, request: urllib.request.Request, response: http.client.HTTPResponse
    ) -> urllib.response.addinfourl:
        """The same answer with its body in memory. Raises OSError for one that is too large or too slow.

        Of an error the status is enough: where its text does not come, it has none.
        """
        seconds = max(ENGINE_READ_S, getattr(request, "timeout", None) or 0.0)
        body = b""
        try:
            with response:
                body = joined(_pieces(response), ENGINE_ANSWER_BYTES, Deadline(seconds))
        except (TooMuch, OSError, http.client.HTTPException) as error:
            if response.status < _ERRORS:
                if isinstance(error, OSError):
                    raise
                raise OSError(f"a broken answer: {error}") from error
        read = urllib.response.addinfourl(io.BytesIO(body), response.headers, request.full_url, response.status)
        read.msg = response.reason  # type: ignore[attr-defined]  # what urllib's own handlers read
        return read

    https_response = http_response


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := response.read1(_PIECE):
        yield piece
