"""Role container_engine: Docker runs, comes with the box, and keeps its logs small."""

from __future__ import annotations

import json
from typing import Any


def test_docker_runs_and_starts_with_the_box(host: Any) -> None:
    docker = host.service("docker")
    assert docker.is_running
    assert docker.is_enabled


def test_its_socket_is_for_root_and_its_group(host: Any) -> None:
    socket = host.file("/var/run/docker.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", "docker", 0o660)
    assert not host.socket("tcp://2375").is_listening


def test_logs_have_an_end(host: Any) -> None:
    settings = host.file("/etc/docker/daemon.json")
    assert (settings.user, settings.mode) == ("root", 0o644)
    assert json.loads(settings.content_string)["log-opts"].keys() >= {"max-size", "max-file"}
