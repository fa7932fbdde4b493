"""Check a gateway from its own box: it must serve TLS, require the API key, and expose nothing but the API.

Standard library only, Python 3.10: it runs with the box's own Python.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from ..core.errors import DrafthouseError, Problem, one_problem
from ..serving.runtimes import Runtime

_CHECK_EVERY_S = 0.2
_LAST_LINES = 15  # of the gateway's log, in a message


class _Loopback(http.client.HTTPSConnection):
    """HTTPS to 127.0.0.1, with the certificate verified for ``name`` ('': for 127.0.0.1)."""

    def __init__(self, port: int, name: str, context: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, timeout=10, context=context)
        self._name = name
        self._trust = context

    def connect(self) -> None:
        """Connect to the address, and let TLS ask for and verify ``name``, not the address."""
        connection = socket.create_connection((self.host, self.port), self.timeout)
        try:
            self.sock = self._trust.wrap_socket(connection, server_hostname=self._name or self.host)
        except BaseException:
            connection.close()
            raise


def trust_of(certificate: str) -> ssl.SSLContext:
    """A context that trusts only the certificate in a file, or the system's authorities if ``certificate`` is ''."""
    return ssl.create_default_context(cafile=certificate or None)


def fingerprint(pem: str) -> str:
    """The SHA-256 fingerprint of a certificate, as tools print it: ``AB:CD:...``."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def request_status(port: int, name: str, trust: ssl.SSLContext, path: str, key: str = "", method: str = "GET") -> int:
    """The HTTP status of one request to the gateway of this machine; ``name``: its DNS name, '' if it has none.

    Raises OSError.
    """
    connection = _Loopback(port, name, trust)
    # Caddy answers a request for another host name with an empty 200.
    headers = {"Host": name} if name else {}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def wait_for_gateway(
    runtime: Runtime,
    program: str,
    *,
    port: int,
    name: str,
    certificate: str,
    key: str,
    timeout_s: float,
    front: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the gateway passes all checks: the API with the key only, and no other path. Raises DrafthouseError.

    The checks are repeated until ``timeout_s`` while nothing answers over TLS; those of a fleet's ``front`` also while
    no replica takes requests. A gateway that died, or a wrong answer, ends the wait at once. ``certificate``: the file
    of the certificate to trust, '' for the system's authorities. ``name``: the gateway's DNS name, '' for none.
    """
    end = clock() + timeout_s
    why = "it was not asked"
    while True:
        state = runtime.state(program)
        if not state.running:
            raise DrafthouseError(_death_problem(runtime, program, state.why, port))
        try:
            _check(port, name, trust_of(certificate), key, front)
            return
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
        if clock() > end:
            raise DrafthouseError(_timeout_problem(runtime, program, why, name, timeout_s))
        sleep(_CHECK_EVERY_S)


def _check(port: int, name: str, trust: ssl.SSLContext, key: str, front: bool) -> None:
    """Send the requests. Raises OSError if there is no answer yet, DrafthouseError for a wrong answer."""
    for path, sent_key, wanted, needed in (
        ("/v1/models", "", 401, "401 to a request without the key"),
        ("/metrics", key, 404, "404 for /metrics, which must not be public"),
        ("/v1/models", key, 200, "200 to a request with the key"),
    ):
        status = request_status(port, name, trust, path, sent_key)
        if status == wanted:
            continue
        # A front answers so until its replicas are ready: no wrong answer, but a reason to check again.
        if front and status in (502, 503):
            raise ConnectionError(f"{status}: no replica takes requests (drafthouse fleet status shows why)")
        if status == 502:
            do = "run site.yml --tags report, which leaves an arm serving, and then site.yml --tags gateway"
            raise one_problem(
                "gateway-without-engine",
                "the gateway runs, but no engine answers behind it",
                "an engine that answers",
                do,
            )
        do = "check whether another server listens on that port; run site.yml --tags gateway again"
        raise one_problem("gateway-not-ready", f"{status} for {path} on port {port}", needed, do)


def _death_problem(runtime: Runtime, program: str, why: str, port: int) -> Problem:
    """The problem of a gateway whose program ended; the advice depends on the last lines of its log."""
    tail = runtime.tail(program, _LAST_LINES)
    do = f"read {runtime.log_name(program)}"
    if "address already in use" in tail:
        do = f"stop what listens on port {port}, or set another one: drafthouse_gateway_port"
    elif "permission denied" in tail:
        do = f"connect as root: only root may listen on port {port}"
    return Problem(
        "gateway-died", f"the gateway died ({why}); its last lines:\n{tail}", "a gateway that keeps running", do
    )


def _timeout_problem(runtime: Runtime, program: str, why: str, name: str, timeout_s: float) -> Problem:
    """The problem of a gateway that did not pass the checks in time; one with a DNS name may wait for its authority."""
    tail = runtime.tail(program, _LAST_LINES)
    do = f"read {runtime.log_name(program)}"
    if name:
        do = (
            f"check that {name} resolves to this box and that its port 80 or 443 is open to everybody, for the"
            " certificate authority. Or leave drafthouse_gateway_name empty: then a certificate is made on the box"
        )
    found = f"not ready within {timeout_s:.0f} s: {why}; the gateway's last lines:\n{tail}"
    return Problem("gateway-not-ready", found, "an answer over TLS with a trusted certificate", do)


def read_key(file: str) -> str:
    """The API key in a file. Raises DrafthouseError if it is missing or invalid, or if other users may read it."""
    path = Path(file)
    try:
        mode = path.stat().st_mode & 0o777
        key = path.read_text("utf-8").strip()
    except OSError as error:
        do = "run site.yml --tags report, which makes one"
        raise one_problem("api-key-unreadable", error.strerror or str(error), "the API key", do, file) from error
    if mode & 0o077:
        needed = "0600: only its owner may read the key"
        raise one_problem("api-key-exposed", f"mode {mode:04o}", needed, f"chmod 600 {file}", file)
    if not key or not key.isascii() or not key.isprintable():
        found = "nothing" if not key else "characters that are not allowed in a header"
        raise one_problem(
            "api-key-invalid", found, "a key of printable ASCII characters", "set another DRAFTHOUSE_API_KEY", file
        )
    return key
