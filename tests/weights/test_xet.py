"""The hub's Xet store, tried with a store in a local folder: success, a store that is not there, one that hangs."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.hub_contents import data_of
from tests.fakes.hub_server import Fault, Hub, hub_server
from tests.weights.harness import FIRST, SECOND, Job, a_model, assert_right, in_words, total

Row = Callable[[str, str, str], None]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A repository whose two shards lie in a Xet store."""
    import hf_xet

    files, hashes = a_model(), {}
    session = hf_xet.XetSession()
    with session.new_upload_commit(endpoint=f"local://{tmp_path}/store") as commit:
        for name in (FIRST, SECOND):
            (tmp_path / name).write_bytes(data_of(files[name]))
            hashes[name] = commit.start_upload_file(str(tmp_path / name))
    for name in (FIRST, SECOND):
        (tmp_path / name).unlink()
    return Hub(
        files,
        xet={name: upload.result().xet_info.hash for name, upload in hashes.items()},
        xet_store=f"local://{tmp_path}/store",
    )


def small(hub: Hub) -> int:
    return total(hub.files) - sum(len(data_of(hub.files[name])) for name in (FIRST, SECOND))


def test_xet_that_works(hub: Hub, tmp_path: Path, row: Row) -> None:
    with hub_server(hub):
        done = Job(hub, tmp_path / "m").run()
        assert done.returned == 0, done.text
        assert_right(tmp_path / "m", hub.files)
        assert hub.sent == small(hub)  # the shards came from the store
        assert done.result["bytes_fetched"] == total(hub.files)
        row("Xet that works", "the right files", in_words(tmp_path / "m", hub.files))


def test_xet_without_its_store(hub: Hub, tmp_path: Path, row: Row) -> None:
    shutil.rmtree(tmp_path / "store")
    with hub_server(hub):
        done = Job(hub, tmp_path / "m").run()
        assert done.returned == 0, done.text
        assert_right(tmp_path / "m", hub.files)
        assert hub.sent == total(hub.files)
        row("Xet without its store (then plain HTTP)", said(done.notes), in_words(tmp_path / "m", hub.files))


def test_xet_without_a_token(hub: Hub, tmp_path: Path) -> None:
    hub.faults["xet"] = [Fault(times=20, status=503)]
    with hub_server(hub):
        done = Job(hub, tmp_path / "m").run()
        assert done.returned == 0, done.text
        assert_right(tmp_path / "m", hub.files)
        assert hub.sent == total(hub.files)


@contextmanager
def silent_server() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_xet_that_hangs(hub: Hub, tmp_path: Path, row: Row) -> None:
    """As it was seen at 99 %: no byte, no error. It is given up after ``stall_s``, and HTTP brings the rest."""
    with hub_server(hub), silent_server() as hub.xet_store:
        done = Job(hub, tmp_path / "m", {"stall_s": 1}).run()
        assert done.returned == 0, done.text
        assert_right(tmp_path / "m", hub.files)
        assert hub.sent == total(hub.files)
        row("Xet that hangs (then plain HTTP)", said(done.notes), in_words(tmp_path / "m", hub.files))


def said(notes: list[str]) -> str:
    """Which of the two shards fails first is chance."""
    return "<br>".join(["the right files", *sorted({re.sub(r"model-0000\d", "model-0000…", line) for line in notes})])
