"""One file into its part: what goes wrong on a line, against a server that does it, and Xet for real.

Further faults of a line, through the whole module, are the cases of test_faults.py.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.retry import Brake, Patience, asked_to_wait
from drafthouse.weights import download as transfer
from drafthouse.weights import xet_stream
from drafthouse.weights.download import Limits, Shared, Stopped, fetch
from drafthouse.weights.hub_client import RemoteFile, look_up
from tests.fakes.hub_contents import Made, data_of
from tests.fakes.hub_server import ALWAYS, RIGHT, Fault, Hub, hub_server

NAME = "model.safetensors"
SIZE = 3_000_000
CONTENT = Made(SIZE, 7)
DATA = bytes(data_of(CONTENT))
SOON = Patience(tries=4, first_s=0.01, longest_s=0.02, longest_wait_s=3)


class Line:
    """A hub with one file, and a part to fetch it into."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.hub = Hub({NAME: CONTENT}, **changes)
        self.part = folder / "x.part"
        self.told = 0
        self.said: list[str] = []

    def fetch(self, **limits: Any) -> int:
        given = Limits(**{"stall_s": 20, "patience": SOON, "say": self.said.append, **limits})
        file = look_up(self.hub.repo, "main", endpoint=self.hub.url, token=given.token).files[0]
        return fetch(file, self.part, given, self.tell)

    def tell(self, count: int) -> None:
        self.told += count

    @property
    def right(self) -> bool:
        return self.part.read_bytes() == DATA


def line_with(folder: Path, *faults: Fault, at: str = NAME, **changes: Any) -> Line:
    return Line(folder, faults={at: list(faults)}, **changes)


def test_a_whole_file(tmp_path: Path) -> None:
    line = Line(tmp_path)
    with hub_server(line.hub):
        assert line.fetch() == SIZE
        assert line.right
        assert line.told == SIZE
        assert line.fetch() == 0  # what is complete is not asked for
    assert line.hub.cdn_asked == [f"{NAME} -"]


def test_it_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.part.write_bytes(DATA[:1_234_567])
    with hub_server(line.hub):
        assert line.fetch() == SIZE - 1_234_567
    assert line.right
    assert line.hub.sent == SIZE - 1_234_567
    assert line.hub.cdn_asked == [f"{NAME} bytes=1234567-{SIZE - 1}"]


def test_a_stall_that_does_not_end_says_so(tmp_path: Path) -> None:
    line = line_with(tmp_path, Fault(times=ALWAYS, stall_at=1_000_000))
    with (
        hub_server(line.hub),
        pytest.raises(DrafthouseError, match=r"no byte for 0\.3 s; 4 tries in a row") as raised,
    ):
        line.fetch(stall_s=0.3)
    assert "1,000,000 of 3,000,000 bytes received" in str(raised.value)
    assert line.part.read_bytes() == DATA[:1_000_000]


def test_a_slow_line_is_no_stall(tmp_path: Path) -> None:
    line = line_with(tmp_path, Fault(rate=1_500_000))
    with hub_server(line.hub):
        line.fetch(stall_s=0.5)
    assert line.right


@pytest.mark.parametrize("at", [NAME, f"resolve:{NAME}"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble(tmp_path: Path, at: str, status: int) -> None:
    line = line_with(tmp_path, Fault(times=2, status=status), at=at)
    with hub_server(line.hub):
        line.fetch()
    assert line.right


def test_a_server_without_ranges_costs_bytes_but_not_the_file(tmp_path: Path) -> None:
    line = line_with(tmp_path, Fault(no_range=True))
    line.part.write_bytes(DATA[:2_000_000])
    with hub_server(line.hub):
        assert line.fetch() == SIZE
    assert line.right
    assert line.told == SIZE - 2_000_000


def test_a_file_that_the_server_has_shorter(tmp_path: Path) -> None:
    line = Line(tmp_path)
    with hub_server(line.hub):
        file = look_up(line.hub.repo, "main", endpoint=line.hub.url).files[0]
        line.hub.files = {NAME: Made(SIZE - 1000, 7)}
        with pytest.raises(DrafthouseError, match=f"HTTP 416: the server's file ends before byte {SIZE - 1000}"):
            fetch(file, line.part, Limits(stall_s=20, patience=SOON), line.tell)


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(tmp_path: Path) -> None:
    line = Line(tmp_path, gated=True)
    with hub_server(line.hub):
        line.fetch(token=RIGHT)
    assert line.right
    assert line.hub.tokens_at_cdn == 0
    assert RIGHT not in repr(Limits(token=RIGHT))


def test_a_small_file_of_a_gated_repository_is_redirected_within_the_hub(tmp_path: Path) -> None:
    line = Line(tmp_path, gated=True)
    line.hub.files = {"config.json": b"{}"}
    with hub_server(line.hub):
        line.fetch(token=RIGHT)
    assert line.part.read_bytes() == b"{}"


def test_a_refusal_of_the_hub_ends_it_at_once(tmp_path: Path) -> None:
    line = Line(tmp_path)
    with hub_server(line.hub):
        file = look_up(line.hub.repo, "main", endpoint=line.hub.url).files[0]
        line.hub.gated = True
        begun = time.monotonic()
        with pytest.raises(DrafthouseError, match="org/model is gated"):
            fetch(file, line.part, Limits(patience=Patience(tries=3, first_s=120.0, longest_s=120.0)), line.tell)
        assert time.monotonic() - begun < 60  # before a second try


def test_no_hub_in_reach(tmp_path: Path) -> None:
    file = RemoteFile("a", 5, None, "0" * 40, "http://127.0.0.1:9/org/model/resolve/x/a")
    with pytest.raises(DrafthouseError, match=r"Connection refused.*4 tries in a row"):
        fetch(file, tmp_path / "a.part", Limits(patience=SOON), lambda count: None)


def test_a_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    transfer.opener.cache_clear()
    try:
        file = RemoteFile("a", 5, None, "0" * 40, "http://hub.invalid/org/model/resolve/x/a")
        with pytest.raises(DrafthouseError, match="Connection refused"):
            fetch(file, tmp_path / "a.part", Limits(patience=SOON), lambda count: None)
    finally:
        monkeypatch.undo()
        transfer.opener.cache_clear()


# --- the disk ---------------------------------------------------------------------------------------------


def test_a_part_that_is_somebody_elses_file_too_is_let_alone(tmp_path: Path) -> None:
    line, other = Line(tmp_path), tmp_path / "other"
    other.write_bytes(b"precious")
    line.part.hardlink_to(other)
    with hub_server(line.hub):
        line.fetch()
    assert line.right
    assert other.read_bytes() == b"precious"


@pytest.fixture
def small_files() -> Iterator[None]:
    """A limit of the process stands for a disk that takes no more: the kernel refuses the write just so."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_takes_no_more(tmp_path: Path, small_files: None) -> None:
    line = Line(tmp_path)
    with hub_server(line.hub), pytest.raises(DrafthouseError, match=r"a file size limit"):
        line.fetch()
    assert line.part.read_bytes() == DATA[:1_000_000]


def test_what_another_failure_ends(tmp_path: Path) -> None:
    line, shared = line_with(tmp_path, Fault(rate=SIZE / 60)), Shared()
    with hub_server(line.hub):
        threading.Timer(0.3, shared.stop.set).start()
        begun = time.monotonic()
        with pytest.raises(Stopped):
            line.fetch(shared=shared)
        assert time.monotonic() - begun < 30  # half of what it would take


# --- Xet ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> Line:
    """A line whose file lies in a Xet store on this disk as well."""
    import hf_xet

    (tmp_path / "source").write_bytes(DATA)
    store = f"local://{tmp_path / 'store'}"
    (info,) = hf_xet.upload_files([str(tmp_path / "source")], store, None, None, None, None)
    return Line(tmp_path, xet={NAME: info.hash}, xet_store=store)


def test_xet_brings_it_and_goes_on_from_any_byte(stored: Line) -> None:
    stored.part.write_bytes(DATA[:1_234_567])
    with hub_server(stored.hub):
        assert stored.fetch() == SIZE - 1_234_567
    assert stored.right
    assert stored.hub.sent == 0
    assert stored.said == []


def test_xet_can_be_left_out(stored: Line) -> None:
    with hub_server(stored.hub):
        stored.fetch(xet=False)
    assert stored.right
    assert stored.hub.sent == SIZE


class HangingSession:
    """A store that never answers: the one thing that a store on this disk does not do."""

    def __init__(self) -> None:
        self.aborted = threading.Event()

    def new_download_stream_group(self, **options: Any) -> HangingSession:
        assert "authorization" not in {name.lower() for name in options["custom_headers"]}
        return self

    def download_stream(self, info: object, start: int | None = None) -> Iterator[bytes]:
        yield DATA[start or 0 : 500_000]
        self.aborted.wait()

    def abort(self) -> None:
        self.aborted.set()


def test_a_stall_of_xet_is_cut_and_gone_on_from_over_http(stored: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[HangingSession] = []

    def another() -> HangingSession:
        sessions.append(HangingSession())
        return sessions[-1]

    monkeypatch.setattr(xet_stream, "_shared_session", another)
    with hub_server(stored.hub):
        stored.fetch(stall_s=0.4)
    assert stored.right
    assert stored.hub.sent == SIZE - 500_000
    assert len(sessions) == 2
    assert all(session.aborted.wait(120) for session in sessions)
    assert "no byte for 0.4 s" in stored.said[0]


# --- patience ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"retry-after": " 7 "}, 7),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 60),
        ({"Retry-After": "Wed, 21 Oct 2015 07:26:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "²"}, None),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api";r=3;t=55'}, None),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_to_wait(headers, now=1445412420) == seconds


def test_pauses_grow_and_end() -> None:
    patience = Patience(tries=4, first_s=1, longest_s=3, longest_wait_s=10)
    assert [patience.pause(failed) for failed in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert patience.pause(1, 9) == 9
    assert patience.pause(1, 11) is None


def test_the_longest_pause_counts() -> None:
    brake = Brake()
    assert brake.left() == 0
    brake.hold(10)
    brake.hold(1)
    assert 9 < brake.left() <= 10
