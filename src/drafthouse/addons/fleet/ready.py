"""The answer of a box's /ready: whether the fleet's front may send requests here.

    python drafthouse-HASH.pyz ready HOME

200 while nobody has taken the box out and its engine answers. Any answered request counts; after 10 s without one the
engine is asked for a single token. Two failures in a row make 503. While the engine's counters move, an answer that is
late is no failure: the engine has much to do. It listens on a socket, where the text is the reason; the gateway passes
on the status alone. Standard library only, Python 3.10.
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
from ..watchdog.switch import is_measured
from .traffic import Order, order_of, traffic_of

#: Seconds without an answered request until a token is asked; between two that are asked after a failure.
QUIET_S, AGAIN_S = 10.0, 2.0
#: Seconds for the token to come; for the engine's own health page, which is asked at each check; between two looks.
ANSWER_S, HEALTH_S, LOOK_S = 30.0, 1.0, 1.0
FAILURES = 2


class Readiness:
    """What is known of one box's engine. ``clock`` and ``ask`` are given by tests."""

    def __init__(
        self,
        home: Path,
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[Order], str] | None = None,
    ) -> None:
        self.home, self.clock, self.ask = home, clock, ask or token_failure
        self.answered_s = clock() - QUIET_S  # the last answer; at first a token is asked at once
        self.asked_s = clock() - AGAIN_S
        self.made: float | None = None  # tokens since the engine's start
        self.failures, self.failure = 0, ""

    def look(self) -> None:
        """Read the engine's counters, and ask for a token if no answer was seen for `QUIET_S`."""
        if reasons_out(self.home) or is_measured(self.home):
            self.failures, self.failure, self.answered_s = 0, "", self.clock() - QUIET_S
            return
        order = order_of(self.home)
        self._count(order)
        now = self.clock()
        if now - self.answered_s < QUIET_S or now - self.asked_s < AGAIN_S:
            return
        self.asked_s = now
        failure = self.ask(order)
        worked = self._count(order)  # our own token is counted now, and not as somebody's at the next look
        if worked or not failure:
            self._answered()
        else:
            self.failures, self.failure = self.failures + 1, failure

    def why_not(self) -> str:
        """Why the box takes no requests now; empty if it does."""
        if reasons := reasons_out(self.home):
            return "; ".join(reasons)
        if is_measured(self.home):
            return "a measurement is under way"
        if self.failures >= FAILURES:
            return self.failure
        return health_failure(order_of(self.home))

    def _answered(self) -> None:
        self.answered_s, self.failures, self.failure = self.clock(), 0, ""

    def _count(self, order: Order) -> bool:
        """Read the tokens that the engine has made; True if they are more than when they were read last."""
        try:
            made = (traffic_of(order) or {}).get("output_tokens")
        except OSError:
            made = None
        worked = made is not None and self.made is not None and made > self.made
        self.made = made
        if worked:
            self._answered()
        return worked


def token_failure(order: Order, timeout_s: float = ANSWER_S) -> str:
    """Ask the engine for one token; what is wrong with its answer, empty if nothing is."""
    try:
        ask_once(order["base_url"], order["model"], text_in(order["key_file"]).strip(), timeout_s, tokens=1)
    except DrafthouseError as error:
        return error.problems[0].found
    return ""


def health_failure(order: Order) -> str:
    """What the engine's health page says against it; a page that is slow says nothing."""
    try:
        with opener().open(f"{order['base_url']}{order['health']}", timeout=HEALTH_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"the engine's health page answers {error.code}"
    except (OSError, http.client.HTTPException) as error:
        late = isinstance(getattr(error, "reason", error), TimeoutError) or "timed out" in str(error)
        return "" if late else f"the engine does not answer: {error}"


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def __init__(self, socket: str, readiness: Readiness) -> None:
        self.readiness = readiness
        super().__init__(socket, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
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
        return "gateway"

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def answering(home: Path, readiness: Readiness) -> Iterator[None]:
    """Answer at the box's socket while the block runs."""
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
    """Answer until somebody ends it; an order that cannot be read now may be there later."""
    readiness = Readiness(home)
    said = ""
    with answering(home, readiness):
        while True:
            try:
                readiness.look()
                why = readiness.failure if readiness.failures >= FAILURES else ""
            except (DrafthouseError, OSError) as error:
                why = str(error)
            if why != said:
                said = why
                print(f"not ready: {why}" if why else "ready again", flush=True)
            time.sleep(LOOK_S)
