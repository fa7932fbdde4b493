"""One definition of a container: `make render` shows it as compose.yaml, and a run and a rollback make it.

Pure: both forms are made of the same data, `compose_service` in Compose's words and `engine_words` in those of Docker's
API (https://docs.docker.com/reference/compose-file/services/, https://docs.docker.com/reference/api/engine/).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from ..core.addresses import in_brackets

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.core.documents import Json
    from drafthouse.profiles.resolved_types import ArmContainer, ResolvedProfile

#: Containers of ours are named `<prefix><arm>`, and found by a label. An arm's has three: which arm it is, what it is
#: made of (its files and its container, as a hash), and its name with the port at which it is published.
PREFIX, LABEL, DEFINITION, PLACE = "drafthouse-", "drafthouse.arm", "drafthouse.definition", "drafthouse_at"
#: Gateway and monitoring have one label each, whose value is the port, or the hash of what they read.
GATEWAY_LABEL, MONITORING_LABEL, FRONT_LABEL = "drafthouse.gateway", "drafthouse.monitoring", "drafthouse.fleet"
#: What every container of ours is: back by itself with the box, and its log no larger than this.
RESTART = "unless-stopped"
LOG_DRIVER, LOG_OPTIONS = "json-file", {"max-size": "20m", "max-file": "3"}
_SECOND = 1_000_000_000  # nanoseconds, in which Docker's API counts


class HealthCheck(TypedDict):
    """A command that ends with 0 where the container is well; times are seconds."""

    command: list[str]
    interval_s: int
    timeout_s: int
    retries: int
    start_period_s: int


class Container(TypedDict):
    """A container, whole. What is left out is the image's own, or Docker's.

    ``ports``: ADDRESS:OUTSIDE:INSIDE, an IPv6 address in brackets. ``mounts``: SOURCE:TARGET:ro or rw.
    ``gpus``: indices or UUIDs; `all` alone stands for each. ``ulimits``: soft and hard limit are one; -1 is none.
    """

    name: str
    image: str
    labels: dict[str, str]
    entrypoint: NotRequired[list[str]]
    command: NotRequired[list[str]]
    environment: NotRequired[dict[str, str]]
    mounts: NotRequired[list[str]]
    ports: NotRequired[list[str]]
    network: NotRequired[str | None]
    ipc: NotRequired[str | None]
    ulimits: NotRequired[dict[str, int]]
    gpus: NotRequired[list[str]]
    health: NotRequired[HealthCheck]
    read_only: NotRequired[bool]
    tmpfs: NotRequired[list[str]]
    capabilities: NotRequired[list[str]]
    without_capabilities: NotRequired[list[str]]
    security: NotRequired[list[str]]


class EngineConfig(TypedDict):
    """A container's own settings, as Docker's API takes and tells them: those that are read, among all the others."""

    Image: str
    Labels: dict[str, str]
    Hostname: NotRequired[str]
    Domainname: NotRequired[str]


class EngineWords(TypedDict):
    """A container as Docker's API takes and tells it; a record has the id of its image too."""

    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: NotRequired[str]


def arm_container(resolved: ResolvedProfile, arm: str, port: int = 0, ready_timeout_s: int = 0) -> Container:
    """The container of an arm, published at ``port`` where that is another than the site's.

    ``resolved`` may be a release's that an older version wrote. ``ready_timeout_s``: instead of the engine's own.
    """
    site, engine = resolved["site"], resolved["engine"]
    wanted = _built(resolved, arm)
    name, outside = f"{PREFIX}{arm}", port or site["port"]
    gpus: list[str] = []
    if wanted["gpus"]:
        gpus = wanted.get("device_ids", ["all"])
    return {
        "name": name,
        "image": wanted["image"],
        "entrypoint": wanted["entrypoint"],
        "command": wanted["command"],
        "environment": wanted["environment"],
        "mounts": wanted["mounts"],
        "ports": [f"{in_brackets(address)}:{outside}:{wanted['port']}" for address in wanted["published"]],
        "ipc": wanted["ipc"],
        "ulimits": wanted["ulimits"],
        "gpus": gpus,
        "health": {
            # There may be no curl in the image; bash is what starts the engine there.
            "command": ["/bin/bash", "-c", _HEALTHY.format(port=site["port"], path=engine["health"])],
            "interval_s": 30,
            "timeout_s": 10,
            "retries": 3,
            "start_period_s": ready_timeout_s or engine["ready_timeout_s"],
        },
        "labels": {LABEL: arm, PLACE: f"{name} {outside}", DEFINITION: definition(resolved, arm)},
    }


_HEALTHY = (
    "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3"
    " && read -r line <&3 && [[ $line == *' 200 '* ]]"
)


def _built(resolved: ResolvedProfile, arm: str) -> ArmContainer:
    built = resolved["arms"].get(arm) or resolved["stock"]
    assert built and built["container"]  # as every arm of a profile that runs in containers has one
    return built["container"]


def definition(resolved: ResolvedProfile, arm: str) -> str:
    """The hash of an arm's files and container: a changed script, or less asked for, is another container."""
    text = ""
    if arm in resolved["arms"]:
        text = "".join(file["content"] for file in resolved["arms"][arm]["files"])
    text += json.dumps(_built(resolved, arm), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def compose_service(container: Container) -> Mapping[str, Json]:
    """A container as a service of a compose.yaml, in which Compose fills nothing in."""
    service: dict[str, Json] = {
        "image": container["image"],
        "container_name": container["name"],
        "entrypoint": container.get("entrypoint"),
        "command": container.get("command"),
        "ports": container.get("ports"),
        "network_mode": container.get("network"),
        "environment": container.get("environment"),
        "ipc": container.get("ipc"),
        "ulimits": container.get("ulimits"),
        "deploy": _gpu_reservation(container.get("gpus")),
        "volumes": container.get("mounts"),
        "read_only": container.get("read_only"),
        "tmpfs": container.get("tmpfs"),
        "cap_add": container.get("capabilities"),
        "cap_drop": container.get("without_capabilities"),
        "security_opt": container.get("security"),
        "healthcheck": _compose_health(container.get("health")),
        "restart": RESTART,
        "logging": {"driver": LOG_DRIVER, "options": {**LOG_OPTIONS}},
        "labels": container["labels"],
    }
    return {key: _literal(value) for key, value in service.items() if value}


def _gpu_reservation(gpus: list[str] | None) -> Json:
    """What Compose reserves: all GPUs, or those with these indices or UUIDs; None without a GPU."""
    if not gpus:
        return None
    device: dict[str, Json] = {"driver": "nvidia"}
    if gpus == ["all"]:
        device["count"] = "all"
    else:
        device["device_ids"] = list(gpus)
    device["capabilities"] = ["gpu"]
    return {"resources": {"reservations": {"devices": [device]}}}


def _compose_health(health: HealthCheck | None) -> Json:
    """A health check in Compose's words, whose times have units; None without one."""
    if health is None:
        return None
    return {
        "test": ["CMD", *health["command"]],
        "interval": f"{health['interval_s']}s",
        "timeout": f"{health['timeout_s']}s",
        "retries": health["retries"],
        "start_period": f"{health['start_period_s']}s",
    }


def _literal(value: Json) -> Json:
    """A value in which Compose, for which `$` begins a variable, finds none."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _literal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value


def engine_words(container: Container) -> EngineWords:
    """A container as Docker's API takes it."""
    bound: dict[str, list[Mapping[str, str]]] = {}
    for port in container.get("ports", []):
        address, outside, inside = port.rsplit(":", 2)
        bound.setdefault(f"{inside}/tcp", []).append({"HostIp": address.strip("[]"), "HostPort": outside})
    health = container.get("health")
    healthcheck: dict[str, Json] | None = None
    if health:
        healthcheck = {
            "Test": ["CMD", *health["command"]],
            "Interval": health["interval_s"] * _SECOND,
            "Timeout": health["timeout_s"] * _SECOND,
            "Retries": health["retries"],
            "StartPeriod": health["start_period_s"] * _SECOND,
        }
    config: dict[str, Json] = {
        "Entrypoint": container.get("entrypoint"),
        "Cmd": container.get("command"),
        "Env": [f"{name}={value}" for name, value in container.get("environment", {}).items()],
        "ExposedPorts": {inside: {} for inside in bound},
        "Healthcheck": healthcheck,
    }
    host: dict[str, Json] = {
        "Binds": container.get("mounts"),
        "PortBindings": bound,
        "NetworkMode": container.get("network"),
        "IpcMode": container.get("ipc"),
        "Ulimits": [{"Name": name, "Soft": n, "Hard": n} for name, n in container.get("ulimits", {}).items()],
        "DeviceRequests": _device_requests(container.get("gpus")),
        "ReadonlyRootfs": container.get("read_only"),
        "Tmpfs": dict.fromkeys(container.get("tmpfs", []), ""),
        "CapAdd": container.get("capabilities"),
        "CapDrop": container.get("without_capabilities"),
        "SecurityOpt": container.get("security"),
        "RestartPolicy": {"Name": RESTART, "MaximumRetryCount": 0},
        "LogConfig": {"Type": LOG_DRIVER, "Config": {**LOG_OPTIONS}},
    }
    return {
        "Config": {
            **_stated(config),  # type: ignore[typeddict-item]
            "Image": container["image"],
            "Labels": container["labels"],
        },
        "HostConfig": _stated(host),
    }


def _stated(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Settings without the empty ones, of which Docker has its own."""
    return {key: value for key, value in settings.items() if value}


def _device_requests(gpus: list[str] | None) -> Json:
    """The GPUs in the words of Docker's API; None without a GPU."""
    if not gpus:
        return None
    if gpus == ["all"]:
        return [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}]
    # A count of 0 is what Docker tells of a container that was given devices by name.
    return [{"Driver": "nvidia", "Count": 0, "DeviceIDs": list(gpus), "Capabilities": [["gpu"]]}]
