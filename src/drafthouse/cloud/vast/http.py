"""One request to vast.ai's REST API: sent or not, answered or not. Standard library only.

Whoever rents must know which of the two it was: what was never sent cost nothing, what was sent and not answered may
have rented a machine. The account's key goes to the address given and nowhere else: redirects are not followed.
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

# Bytes of an answer that are read; a search of 64 offers is about 200 KB.
_MOST = 32 << 20
# Nothing can have reached the other side.
_NEVER_SENT = (socket.gaierror, ConnectionRefusedError, ssl.SSLCertVerificationError)
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL})


class NotSent(Exception):
    """No connection: the request cannot have had an effect."""


class Unanswered(Exception):
    """The request was on its way, and no whole answer came: it may have had its effect."""


@dataclass(frozen=True)
class Answer:
    """What came back. ``data`` is the JSON of it, or None where it is none."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def data(self) -> Any:
        """The answer's JSON, or None."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def field(self, name: str) -> Any:
        """A field of the answer's JSON object; None without it."""
        data = self.data
        if not isinstance(data, dict):
            return None
        return data.get(name)

    def word(self, name: str) -> str:
        """A text of the answer's object (`error`, `msg`), or nothing, on one line."""
        value = self.field(name)
        if not isinstance(value, str):
            return ""
        return " ".join(value.split())[:300]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like another: following it would carry the key to whoever it names."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Follow none."""
        return


def checked_url(url: str) -> str:
    """The API's address without a slash at its end; DrafthouseError where a key should not be sent to it."""
    parts = _split(url)
    host = parts.hostname or ""
    sealed = parts.scheme == "https" or (parts.scheme == "http" and is_near(host))
    if sealed and host and not (parts.username or parts.password or parts.query or parts.fragment):
        return url.rstrip("/")
    raise one_problem(
        "invalid-setting",
        f"VAST_URL={parts.scheme}://{host}" if host else "a VAST_URL without a host",
        "https://... (plain http only on this machine or in a private network), without user, query or fragment",
        "unset VAST_URL: the default is vast.ai itself",
    )


def is_near(host: str) -> bool:
    """Tell whether plain HTTP to this host stays on this machine or in a private network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return urlsplit("")
    return parts


def opener_for(url: str) -> urllib.request.OpenerDirector:
    """What opens ``url``: the environment's proxies are used, but not to reach this machine."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_near(_split(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def send(method: str, url: str, headers: Mapping[str, str], body: Any = None, timeout_s: float = 30.0) -> Answer:
    """The answer, whatever its status. Raises NotSent, or Unanswered; neither names a header."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise NotSent("an address that is not http(s)")
    request = urllib.request.Request(url, None, dict(headers), method=method)  # noqa: S310 (looked at above)
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")

    def ask() -> Answer:
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
            raise NotSent(_words(reason)) from None
        raise Unanswered(_words(reason)) from None
    except (http.client.HTTPException, OSError) as error:
        raise Unanswered(_words(error)) from None


def _read(answer: Any, status: int) -> Answer:
    try:
        raw = answer.read(_MOST)
        if left := answer.length:
            raise http.client.IncompleteRead(raw, left)
    except (http.client.HTTPException, OSError) as error:
        raise Unanswered(f"HTTP {status}, and {_words(error)}") from None
    return Answer(status, dict(answer.headers.items()), raw.decode("utf-8", "replace"))


def _was_not_sent(reason: Exception) -> bool:
    return isinstance(reason, _NEVER_SENT) or (isinstance(reason, OSError) and reason.errno in _NO_WAY)


def _words(error: Exception) -> str:
    """An error on one line, without the addresses of objects and without what was read so far."""
    if isinstance(error, http.client.IncompleteRead):
        return "the answer ended too early"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
