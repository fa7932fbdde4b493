"""HTTP requests to a measured server, without a proxy, like the measured requests themselves (`bench/client.py`).

A proxy from the environment would read the key, answer for a server that is gone, and often not reach this machine.
A response is read completely before it is returned, within the bounds of `bounded.py`: a broken engine must not hang
this program or fill its memory.
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

_PIECE = 64 << 10  # bytes per read
_ERRORS = 400  # the lowest HTTP status of an error


@functools.cache
def opener(ca_pem: str | None = None) -> urllib.request.OpenerDirector:
    """An opener of HTTP and HTTPS URLs that ignores `http_proxy`; it raises what `urlopen` raises.

    It follows no redirect: that could send the key to another host, or a request to an internal address.
    ``ca_pem``: certificates to trust instead of the system's.
    """
    trust = ssl.create_default_context(cadata=ca_pem) if ca_pem else None
    direct = _Opener()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=trust),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Bounded(),
    ):
        direct.add_handler(handler)
    return direct


class _Opener(urllib.request.OpenerDirector):
    """Opens a URL within a total time: connection, headers and body."""

    def open(self, fullurl: Any, data: Any = None, timeout: float | None = ENGINE_READ_S) -> Any:
        """The response, within ``timeout`` but at least `ENGINE_READ_S` seconds. Raises OSError."""
        seconds = max(ENGINE_READ_S, timeout or 0.0)
        try:
            return within(seconds, lambda: super(_Opener, self).open(fullurl, data, timeout))
        except TooMuch as error:
            raise TimeoutError(str(error)) from error


class _Bounded(urllib.request.BaseHandler):
    """Reads the body of a response before urllib's own handler (order 1000) raises an error for its status."""

    handler_order = 900

    def http_response(
        self, request: urllib.request.Request, response: http.client.HTTPResponse
    ) -> urllib.response.addinfourl:
        """The same response with its body in memory. Raises OSError for a body that is too large or too slow.

        An error status counts even without its body: where the body cannot be read, it is empty.
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
        copy = urllib.response.addinfourl(io.BytesIO(body), response.headers, request.full_url, response.status)
        copy.msg = response.reason  # type: ignore[attr-defined]  # urllib's handlers read this attribute
        return copy

    https_response = http_response


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body as it arrives, so that its bounds are checked while it is read."""
    while piece := response.read1(_PIECE):
        yield piece
