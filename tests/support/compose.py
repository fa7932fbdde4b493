"""A compose.yaml read as Compose reads it, in the words of Docker's API: written apart from what renders it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml


def plain_compose(content: str) -> dict[str, Any]:
    """The one service of a compose.yaml, with what Compose makes of its values: $$ is $, and $x a variable."""

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            assert "$" not in value.replace("$$", ""), value
            return value.replace("$$", "$")
        if isinstance(value, Mapping):
            return {plain(key): plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list) else value

    read = yaml.safe_load(content)
    assert list(read) == ["services"] and list(read["services"]) == ["engine"]
    return dict(plain(read["services"]["engine"]))


def engine_words_of(service: Mapping[str, Any]) -> dict[str, Any]:
    """What Compose asks of Docker's API for a service; a key that is not known here is an error."""
    left = dict(service)
    config: dict[str, Any] = {"Image": left.pop("image"), "Labels": left.pop("labels")}
    host: dict[str, Any] = {}
    left.pop("container_name")  # a name of its own request
    for key, of, word in (
        ("entrypoint", config, "Entrypoint"), ("command", config, "Cmd"), ("volumes", host, "Binds"),
        ("ipc", host, "IpcMode"), ("network_mode", host, "NetworkMode"),
    ):  # fmt: skip
        if key in left:
            of[word] = left.pop(key)
    if "environment" in left:
        config["Env"] = [f"{name}={value}" for name, value in left.pop("environment").items()]
    if "ulimits" in left:
        host["Ulimits"] = [{"Name": name, "Soft": n, "Hard": n} for name, n in left.pop("ulimits").items()]
    if "ports" in left:
        bindings: dict[str, list[dict[str, str]]] = {}
        for port in left.pop("ports"):
            found = re.fullmatch(r"\[?([^\]]*)\]?:(\d+):(\d+)", port)
            assert found, port
            bindings.setdefault(f"{found[3]}/tcp", []).append({"HostIp": found[1], "HostPort": found[2]})
        config["ExposedPorts"], host["PortBindings"] = {port: {} for port in bindings}, bindings
    if "healthcheck" in left:
        check = left.pop("healthcheck")
        config["Healthcheck"] = {
            "Test": check.pop("test"), "Retries": check.pop("retries"), "Interval": _ns(check.pop("interval")),
            "Timeout": _ns(check.pop("timeout")), "StartPeriod": _ns(check.pop("start_period")),
        }  # fmt: skip
        assert not check
    if "deploy" in left:
        (device,) = left.pop("deploy")["resources"]["reservations"]["devices"]
        asked = {"Driver": device["driver"], "Capabilities": [device["capabilities"]]}
        ids = device.get("device_ids")
        assert ("count" in device) != bool(ids) and device.get("count", "all") == "all"
        host["DeviceRequests"] = [{**asked, "Count": 0, "DeviceIDs": ids} if ids else {**asked, "Count": -1}]
    host["RestartPolicy"] = {"Name": left.pop("restart"), "MaximumRetryCount": 0}
    log = left.pop("logging")
    host["LogConfig"] = {"Type": log["driver"], "Config": log["options"]}
    assert not left, left
    return {"Config": config, "HostConfig": host}


def _ns(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found, text
    return int(found[1]) * 1_000_000_000
