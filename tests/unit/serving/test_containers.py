"""Is there a container engine to ask? By its socket, who listens there, and whether the program is installed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from drafthouse.serving import containers


def test_an_engine_that_was_removed_leaves_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "docker.sock"
    monkeypatch.setattr(containers, "SOCKET", str(path))
    monkeypatch.setattr(containers, "_PROGRAMS", str(tmp_path))
    assert not containers.has_engine()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert containers.has_engine()
    assert path.exists()
    assert not containers.has_engine()
    # One that is installed and stopped is asked, and says so: its containers come back with it.
    (tmp_path / "dockerd").touch(mode=0o755)
    assert containers.has_engine()
