"""What others send ends within bounds: answers, addresses, passwords in them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from drafthouse.core.addresses import may_lead_to
from drafthouse.core.bounded import ENGINE_ANSWER_BYTES, MIB, Deadline, TooMuch, joined
from drafthouse.core.errors import one_problem
from drafthouse.core.http import opener
from drafthouse.core.plain_text import without_passwords

Talk = Callable[[socket.socket], None]


@contextmanager
def answering(talk: Talk) -> Iterator[str]:
    """A server that sends what ``talk`` sends, to one request after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    line, _ = server.accept()
                except TimeoutError:
                    continue
                with line:
                    line.recv(65536)
                    with suppress(OSError):
                        talk(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        over.set()
        thread.join(5)


def test_pieces_are_joined_up_to_a_bound() -> None:
    assert joined([b"ab", b"c"], 3) == b"abc"
    with pytest.raises(TooMuch, match="more than 0 MiB"):
        joined([b"ab", b"c"], 2)
    with pytest.raises(TooMuch, match="within 0 s"):
        joined([b"ab"], 9, Deadline(0.0))


def test_an_answer_without_an_end_is_cut_off() -> None:
    def flood(line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(4 * ENGINE_ANSWER_BYTES // MIB):
            line.sendall(bytes(MIB))

    with answering(flood) as url, pytest.raises(OSError, match="more than 16 MiB"):
        opener().open(url, timeout=5)


@pytest.mark.parametrize(
    ("head", "expected"), [(b"HTTP/1.1 200 OK\r\n\r\n", OSError), (b"HTTP/1.1 200 OK\r\nX-Drip: ", TimeoutError)]
)
def test_what_drips_is_cut_off(head: bytes, expected: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafthouse.core.http.ENGINE_READ_S", 0.4)

    def drip(line: socket.socket) -> None:
        line.sendall(head)
        for _ in range(100):
            line.sendall(b"x")
            time.sleep(0.1)

    begun = time.monotonic()
    with answering(drip) as url, pytest.raises(expected, match="no whole answer within"):
        opener().open(url, timeout=0.3)
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_to_anywhere(status: int) -> None:
    asked = list[bytes]()

    def redirect(line: socket.socket) -> None:
        asked.append(b"")
        line.sendall(f"HTTP/1.1 {status} X\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n".encode())

    with answering(redirect) as url, pytest.raises(OSError, match=f"HTTP Error {status}"):
        opener().open(url, timeout=5)
    assert len(asked) == 1
    for other in ("file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"):
        with pytest.raises(OSError, match="unknown url type"):
            opener().open(other)


def test_an_error_keeps_its_status_without_its_text() -> None:
    def broken(line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nhalf")

    with answering(broken) as url, pytest.raises(OSError, match="HTTP Error 503"):
        opener().open(url, timeout=5)


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("http://hub.example:8080/x", True),
        ("https://hub.example/x", True),
        ("http://169.254.169.254/latest/meta-data", False),
        ("http://[fe80::1]/", False),
        ("http://10.0.0.8/", False),
        ("http://192.168.1.1:80/", False),
        ("http://127.0.0.1/", False),
        ("http://localhost:8000/", False),
        ("http://[::ffff:10.0.0.1]/", False),
        ("http://0x7f000001/", False),
        ("http://2852039166/", False),
        ("http://0251.0376.0251.0376/", False),
        ("http://[::ffff:169.254.169.254]/", False),
        ("http://[64:ff9b::a9fe:a9fe]/", False),
        ("http://[2002:a9fe:a9fe::]/", False),
        ("http://0/", False),
        ("http://[::]/", False),
        ("gopher://1.1.1.1/", False),
        ("//169.254.169.254/", False),
        ("http://1.1.1.1/", True),
        ("file:///etc/passwd", False),
        ("http://[::1", False),
        ("http://host:99999/", False),
    ],
)
def test_where_an_answer_may_lead(url: str, fine: bool) -> None:
    assert may_lead_to(url, "https://hub.example/") is fine


def test_only_a_hub_of_this_machine_names_a_folder_of_it() -> None:
    assert may_lead_to("local:///srv/store", "http://127.0.0.1:8000/")
    assert not may_lead_to("local:///srv/store", "https://hub.example/")
    assert not may_lead_to("local:///srv/store", "http://10.0.0.8/")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("arm single: http://me:SECRET@127.0.0.1:9/v1", "arm single: http://(password)@127.0.0.1:9/v1"),
        ("https://:SECRET@h and http://a:SECRET@b", "https://(password)@h and http://(password)@b"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ("mail a:b@c", "mail a:b@c"),
    ],
)
def test_a_password_in_an_address_is_not_shown(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
    problem = one_problem("invalid-option", text, "an address", "correct it", text)
    assert "SECRET" not in str(problem)
    assert "SECRET" not in str(problem.result)
