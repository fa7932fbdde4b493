"""Role serve: one container serves, without privileges, and nobody gets an answer without the key."""

from __future__ import annotations

from typing import Any

HOME, API_PORT = "/opt/drafthouse", 8000


def test_one_arm_serves(host: Any) -> None:
    (name,) = host.check_output("docker ps --filter label=drafthouse.arm --format '{{.Names}}'").split()
    container = host.docker(name)
    assert container.is_running
    settings = container.inspect()["HostConfig"]
    assert settings["RestartPolicy"]["Name"] == "unless-stopped"
    assert not settings["Privileged"]


def test_the_api_listens_and_asks_for_the_key(host: Any) -> None:
    assert host.socket(f"tcp://{API_PORT}").is_listening
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{API_PORT}/v1/models"
    assert host.check_output(asked) == "401"


def test_the_key_is_for_its_owner(host: Any) -> None:
    key = host.file(f"{HOME}/secrets/api_key")
    assert (key.user, key.mode) == ("root", 0o600)
    assert host.file(f"{HOME}/secrets").mode == 0o700


def test_nobody_else_changes_what_is_started(host: Any) -> None:
    assert host.check_output(f"find {HOME}/serve {HOME}/served -perm /022 -not -type l") == ""
