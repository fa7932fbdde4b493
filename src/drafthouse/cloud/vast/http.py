"""Send one request to vast.ai's REST API. Standard library only.

Failures are of two kinds, because renting costs money: a request that was never sent has no effect, but one that was
sent and not answered may have rented a machine. Redirects are not followed, so the API key reaches no other host.
"""

from __future__ import annotations

import errno
import http.client
import ipaddress
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ...core.bounded import TooMuch, within
from ...core.errors import one_problem

# Limit for an answer, in bytes; a search result of 64 offers has about 200 KB.
_MAX_BYTES = 32 << 20
# Errors after which the request cannot have reached the server: by class, and by number.
_NEVER_SENT = (socket.gaierror, ConnectionRefusedError, ssl.SSLCertVerificationError)
_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL})


class NotSent(Exception):
    """There was no connection, so the request had no effect."""


class Unanswered(Exception):
    """The request was sent but not answered completely, so it may have had an effect."""


@dataclass(frozen=True)
class Answer:
    """Answer of the API, with any status."""

    status: int
    headers: Mapping[str, str]
    text: str  # the body

    @property
    def data(self) -> Any:
        """JSON value of the answer, or None if it is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def field(self, name: str) -> Any:
        """Field of the answer's JSON object; None if it is missing."""
        data = self.data
        if not isinstance(data, dict):
            return None
        return data.get(name)

    def text_field(self, name: str) -> str:
        """Text field (`error`, `msg`) on one line, at most 300 characters; '' if it is missing or not a text."""
        value = self.field(name)
        if not isinstance(value, str):
            return ""
        return " ".join(value.split())[:300]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treat a redirect as a normal answer: following it would send the API key to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Do not follow the redirect."""
        return


def checked_url(url: str) -> str:
    """URL of the API without a trailing slash. Raises DrafthouseError if sending a key there is not safe."""
    parts = _split(url)
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_private(host))
    if is_safe and host and not (parts.username or parts.password or parts.query or parts.fragment):
        return url.rstrip("/")
    raise one_problem(
        "invalid-setting",
        f"VAST_URL={parts.scheme}://{host}" if host else "a VAST_URL without a host",
        "https://... (plain http only on this machine or in a private network), without user, query or fragment",
        "unset VAST_URL: the default is vast.ai itself",
    )


def is_private(host: str) -> bool:
    """True if plain HTTP to this host stays on this machine or in a private network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    """Parts of a URL; all are empty for a malformed one."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a malformed port
    except ValueError:
        return urlsplit("")
    return parts


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """HTTP client for ``url``; it uses the environment's proxies, except for private addresses."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_private(_split(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def send(method: str, url: str, headers: Mapping[str, str], body: Any = None, timeout_s: float = 30.0) -> Answer:
    """Send a request and return the answer, whatever its status.

    ``body``: a JSON value; None sends none. ``timeout_s``: of the connection and of each read; the whole request may
    take twice as long. Raises NotSent or Unanswered, whose texts hold no headers, so no key.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise NotSent("an address that is not http(s)")
    request = urllib.request.Request(url, None, dict(headers), method=method)  # noqa: S310 (checked above)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")

    def ask() -> Answer:
        """Send it; urllib raises an answer with an error status as an exception."""
        try:
            with opener_for(url).open(request, timeout=timeout_s) as answer:
                return _read(answer, answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return _read(error, error.code)

    try:
        return within(2 * timeout_s, ask)
    except TooMuch as error:
        raise Unanswered(str(error)) from None
    except urllib.error.URLError as error:
        reason = error.reason
        if not isinstance(reason, Exception):
            reason = OSError(str(reason))
        if _was_not_sent(reason):
            raise NotSent(_one_line(reason)) from None
        raise Unanswered(_one_line(reason)) from None
    except (http.client.HTTPException, OSError) as error:
        raise Unanswered(_one_line(error)) from None


def _read(answer: Any, status: int) -> Answer:
    """Read the body of an answer. Raises Unanswered if it is incomplete, or longer than the limit."""
    try:
        raw = answer.read(_MAX_BYTES)
        if missing_bytes := answer.length:
            raise http.client.IncompleteRead(raw, missing_bytes)
    except (http.client.HTTPException, OSError) as error:
        raise Unanswered(f"HTTP {status}, and {_one_line(error)}") from None
    return Answer(status, dict(answer.headers.items()), raw.decode("utf-8", "replace"))


def _was_not_sent(reason: Exception) -> bool:
    return isinstance(reason, _NEVER_SENT) or (isinstance(reason, OSError) and reason.errno in _NO_ROUTE)


def _one_line(error: Exception) -> str:
    """Text of an error on one line, without the part of an answer that was read."""
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended too early"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
