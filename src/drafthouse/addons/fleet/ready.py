"""The program behind a box's /ready, which tells the front of its fleet whether the box can take requests.

    python drafthouse-HASH.pyz ready HOME

A fleet is several boxes behind one address, the front; each has a gateway in front of its engine. The program answers
503 if the box was taken out of traffic (`serving/out_of_traffic.py`), is being measured, or its engine generates no
tokens; else 200. If the engine's token counter has not risen for 10 s, the program requests one token; two failures in
a row give 503. A late token is no failure if the counter rises meanwhile: the engine is busy. The program listens on a
Unix socket; the gateway passes on the status, and not the body with the reason. Standard library only, Python 3.10.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

from ...core.errors import DrafthouseError
from ...core.files import text_in
from ...core.http import opener
from ...serving.first_request import ask_once
from ...serving.out_of_traffic import reasons_out
from ..gateway_door import ready_socket
from ..watchdog.switch import is_box_locked
from .traffic import Order, order_of, traffic_of

# All but the last in seconds.
QUIET_S = 10.0  # without a new token until one is requested
AGAIN_S = 2.0  # at least between two requests for a token
ANSWER_S = 30.0  # timeout of the requested token
HEALTH_S = 1.0  # timeout of the engine's health page
LOOK_S = 1.0  # between two looks at the counters
FAILURES = 2  # requests for a token that fail in a row, until the box is not ready


class Readiness:
    """The readiness of one box's engine.

    Tests pass ``clock`` and ``ask``, which requests a token and returns why that failed, '' if it did not.
    """

    def __init__(
        self,
        home: Path,
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[Order], str] | None = None,
    ) -> None:
        self.home = home
        self.clock = clock
        self.ask = ask or token_failure
        self.last_token_s = clock() - QUIET_S  # time of the last new token; at first so long ago that one is requested
        self.last_request_s = clock() - AGAIN_S  # time of the last request for a token
        self.generated: float | None = None  # tokens since the engine's start; None: not read yet, or not readable
        self.failures = 0  # requests for a token that failed, in a row
        self.failure = ""  # why the last one failed

    def look(self) -> None:
        """Read the engine's counters, and request a token if there was no new one for `QUIET_S`."""
        if reasons_out(self.home) or is_box_locked(self.home):
            # Nothing is requested from an engine that is out of traffic or measured, and the first look afterwards
            # requests a token at once.
            self._reset_failures(last_token_s=self.clock() - QUIET_S)
            return
        order = order_of(self.home)
        self._read_counter(order)
        now_s = self.clock()
        if now_s - self.last_token_s < QUIET_S or now_s - self.last_request_s < AGAIN_S:
            return
        self.last_request_s = now_s
        failure = self.ask(order)
        has_worked = self._read_counter(order)  # read now, so that the requested token does not count at the next look
        if has_worked or not failure:
            self._reset_failures(last_token_s=self.clock())
        else:
            self.failures += 1
            self.failure = failure

    def why_not(self) -> str:
        """The reason for which the box takes no requests now; '' if it does."""
        if reasons := reasons_out(self.home):
            return "; ".join(reasons)
        if is_box_locked(self.home):
            return "a measurement is under way"
        if self.failures >= FAILURES:
            return self.failure
        return health_failure(order_of(self.home))

    def _reset_failures(self, last_token_s: float) -> None:
        self.last_token_s = last_token_s
        self.failures = 0
        self.failure = ""

    def _read_counter(self, order: Order) -> bool:
        """Read the engine's token counter; return True if it has risen since the last time, and reset the failures.

        False too if it could not be read now or the last time.
        """
        try:
            generated = (traffic_of(order) or {}).get("output_tokens")
        except OSError:
            generated = None
        has_worked = generated is not None and self.generated is not None and generated > self.generated
        self.generated = generated
        if has_worked:
            self._reset_failures(last_token_s=self.clock())
        return has_worked


def token_failure(order: Order, timeout_s: float = ANSWER_S) -> str:
    """Request one token from the engine; return why that failed, '' if it did not."""
    try:
        ask_once(order["base_url"], order["model"], text_in(order["key_file"]).strip(), timeout_s, tokens=1)
    except DrafthouseError as error:
        return error.problems[0].found
    return ""


def health_failure(order: Order) -> str:
    """Why the engine's health page shows a failure, '' if it does not.

    A timeout is no failure: a busy engine may answer late, and `Readiness` sees whether it generates tokens.
    """
    try:
        with opener().open(f"{order['base_url']}{order['health']}", timeout=HEALTH_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"the engine's health page answers {error.code}"
    except (OSError, http.client.HTTPException) as error:
        late = isinstance(getattr(error, "reason", error), TimeoutError) or "timed out" in str(error)
        return "" if late else f"the engine does not answer: {error}"


class _Server(ThreadingMixIn, UnixStreamServer):
    """The server at the box's socket; each request has a thread, so that a slow health page delays no other."""

    daemon_threads = True

    def __init__(self, socket: str, readiness: Readiness) -> None:
        self.readiness = readiness
        super().__init__(socket, _Handler)


class _Handler(BaseHTTPRequestHandler):
    """The answer to a request for any path: 200, or 503 with the reason as its body."""

    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        try:
            why = self.server.readiness.why_not()
        except (DrafthouseError, OSError) as error:
            why = str(error)
        text = why.encode()
        self.send_response(503 if why else 200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the gateway reads no further than the status
            self.wfile.write(text)

    def address_string(self) -> str:
        return "gateway"  # a client of a Unix socket has no address

    def log_message(self, *_: object) -> None:
        pass  # no line for each request


@contextlib.contextmanager
def answering(home: Path, readiness: Readiness) -> Iterator[None]:
    """Answer requests at the box's socket while the block runs."""
    socket = Path(ready_socket(str(home)))
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    with _Server(str(socket), readiness) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()


def answer_for_ever(home: Path) -> None:
    """Answer until the program is ended, and print each change of the reason for which the box is not ready.

    An order that cannot be read makes the box not ready until it can.
    """
    readiness = Readiness(home)
    printed = ""
    with answering(home, readiness):
        while True:
            try:
                readiness.look()
                why = readiness.failure if readiness.failures >= FAILURES else ""
            except (DrafthouseError, OSError) as error:
                why = str(error)
            if why != printed:
                printed = why
                print(f"not ready: {why}" if why else "ready again", flush=True)
            time.sleep(LOOK_S)
