"""One definition of a container, as a compose.yaml (for `make render`) and for Docker Engine's API (for runs).

No function here reads a file or calls Docker. `compose_service` writes the first
(https://docs.docker.com/reference/compose-file/services/), `engine_words` the second
(https://docs.docker.com/reference/api/engine/).
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

#: Drafthouse's containers are named `<prefix><arm>` and found by their labels.
PREFIX = "drafthouse-"
#: The labels of an arm's container: the arm; a hash of its files and its definition; its name and published port.
LABEL = "drafthouse.arm"
DEFINITION = "drafthouse.definition"
PLACE = "drafthouse_at"
#: The labels of gateway, monitoring and fleet front. The value is a port, or a hash of the configuration.
GATEWAY_LABEL = "drafthouse.gateway"
MONITORING_LABEL = "drafthouse.monitoring"
FRONT_LABEL = "drafthouse.fleet"
#: For every container: Docker starts it again after a reboot, unless somebody stopped it.
RESTART = "unless-stopped"
#: For every container: Docker limits its log to three files of 20 MB.
LOG_DRIVER = "json-file"
LOG_OPTIONS = {"max-size": "20m", "max-file": "3"}
_SECOND = 1_000_000_000  # in nanoseconds, the unit of Docker's API


class HealthCheck(TypedDict):
    """A command that Docker runs again and again; it exits with 0 if the container is healthy."""

    command: list[str]
    interval_s: int  # between two checks
    timeout_s: int  # after which a check has failed
    retries: int  # failed checks in a row after which the container is unhealthy
    start_period_s: int  # after the start, in which failed checks do not count


class Container(TypedDict):
    """A container. A missing key, None or an empty value means the image's default, or else Docker's."""

    name: str
    image: str
    labels: dict[str, str]
    entrypoint: NotRequired[list[str]]
    command: NotRequired[list[str]]  # arguments of the entrypoint
    environment: NotRequired[dict[str, str]]
    mounts: NotRequired[list[str]]  # SOURCE:TARGET:ro or rw
    ports: NotRequired[list[str]]  # ADDRESS:OUTSIDE:INSIDE, an IPv6 address in brackets
    network: NotRequired[str | None]  # Docker's network mode, such as `host`
    ipc: NotRequired[str | None]  # Docker's IPC mode, such as `host`
    ulimits: NotRequired[dict[str, int]]  # soft and hard limit in one, by name; -1 is no limit
    gpus: NotRequired[list[str]]  # indices or UUIDs, or `all` alone; [] for none
    health: NotRequired[HealthCheck]
    read_only: NotRequired[bool]  # the container's root file system
    tmpfs: NotRequired[list[str]]  # folders in memory
    capabilities: NotRequired[list[str]]  # Linux capabilities to add
    without_capabilities: NotRequired[list[str]]  # Linux capabilities to take away
    security: NotRequired[list[str]]  # Docker's security options, such as `no-new-privileges`


class EngineConfig(TypedDict):
    """The part `Config` of a container in Docker Engine's API; only the keys that Drafthouse reads are named."""

    Image: str  # as it was named, not its id
    Labels: dict[str, str]
    Hostname: NotRequired[str]
    Domainname: NotRequired[str]


class EngineWords(TypedDict):
    """A container in the format of Docker Engine's API; ``Image``, only in answers, is the image's id."""

    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: NotRequired[str]


def arm_container(resolved: ResolvedProfile, arm: str, port: int = 0, ready_timeout_s: int = 0) -> Container:
    """The container of an arm. ``port``: the published port, 0 for the site's. ``ready_timeout_s``: 0 for the engine's.

    ``resolved`` may be a kept release that an older version of Drafthouse wrote.
    """
    site = resolved["site"]
    engine = resolved["engine"]
    planned = _planned_container(resolved, arm)
    name = f"{PREFIX}{arm}"
    outside = port or site["port"]
    gpus: list[str] = []
    if planned["gpus"]:
        gpus = planned.get("device_ids", ["all"])
    return {
        "name": name,
        "image": planned["image"],
        "entrypoint": planned["entrypoint"],
        "command": planned["command"],
        "environment": planned["environment"],
        "mounts": planned["mounts"],
        "ports": [f"{in_brackets(address)}:{outside}:{planned['port']}" for address in planned["published"]],
        "ipc": planned["ipc"],
        "ulimits": planned["ulimits"],
        "gpus": gpus,
        "health": {
            # The image may have no curl, but it has bash, which starts the engine.
            "command": ["/bin/bash", "-c", _HEALTHY.format(port=site["port"], path=engine["health"])],
            "interval_s": 30,
            "timeout_s": 10,
            "retries": 3,
            "start_period_s": ready_timeout_s or engine["ready_timeout_s"],
        },
        "labels": {LABEL: arm, PLACE: f"{name} {outside}", DEFINITION: definition(resolved, arm)},
    }


#: A GET request by bash itself: the container is healthy if the first line of the answer has the status 200.
_HEALTHY = (
    "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3"
    " && read -r line <&3 && [[ $line == *' 200 '* ]]"
)


def _planned_container(resolved: ResolvedProfile, arm: str) -> ArmContainer:
    """The resolver's plan of an arm's container; the arm `stock` has one even if it is not measured."""
    planned = resolved["arms"].get(arm) or resolved["stock"]
    assert planned and planned["container"]  # every arm has one in the docker runtime
    return planned["container"]


def definition(resolved: ResolvedProfile, arm: str) -> str:
    """A hash of an arm's files and container; if either changes, a new container must be created.

    The arm `stock` has no kept files unless it is measured; then the hash is of its container alone.
    """
    text = ""
    if arm in resolved["arms"]:
        text = "".join(file["content"] for file in resolved["arms"][arm]["files"])
    text += json.dumps(_planned_container(resolved, arm), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def compose_service(container: Container) -> Mapping[str, Json]:
    """The container as a service of a compose.yaml, without empty values."""
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
    return {key: _escaped(value) for key, value in service.items() if value}


def _gpu_reservation(gpus: list[str] | None) -> Json:
    """Compose's reservation of GPUs: of all, or of those with the given indices or UUIDs; None without a GPU."""
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
    """The health check in Compose's format, with units of time; None without one."""
    if health is None:
        return None
    return {
        "test": ["CMD", *health["command"]],
        "interval": f"{health['interval_s']}s",
        "timeout": f"{health['timeout_s']}s",
        "retries": health["retries"],
        "start_period": f"{health['start_period_s']}s",
    }


def _escaped(value: Json) -> Json:
    """``value`` with each `$` doubled, so that Compose does not read it as the beginning of a variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value


def engine_words(container: Container) -> EngineWords:
    """The container in the format of Docker Engine's API, without empty values."""
    bound: dict[str, list[Mapping[str, str]]] = {}  # addresses and ports of the host, by the container's port
    for port in container.get("ports", []):
        address, outside, inside = port.rsplit(":", 2)
        bound.setdefault(f"{inside}/tcp", []).append({"HostIp": address.strip("[]"), "HostPort": outside})
    config: dict[str, Json] = {
        "Entrypoint": container.get("entrypoint"),
        "Cmd": container.get("command"),
        "Env": [f"{name}={value}" for name, value in container.get("environment", {}).items()],
        "ExposedPorts": {inside: {} for inside in bound},
        "Healthcheck": _engine_health(container.get("health")),
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
            **_without_empty(config),  # type: ignore[typeddict-item]
            "Image": container["image"],
            "Labels": container["labels"],
        },
        "HostConfig": _without_empty(host),
    }


def _engine_health(health: HealthCheck | None) -> Json:
    """The health check in the format of Docker's API, with times in nanoseconds; None without one."""
    if health is None:
        return None
    return {
        "Test": ["CMD", *health["command"]],
        "Interval": health["interval_s"] * _SECOND,
        "Timeout": health["timeout_s"] * _SECOND,
        "Retries": health["retries"],
        "StartPeriod": health["start_period_s"] * _SECOND,
    }


def _without_empty(settings: Mapping[str, Json]) -> dict[str, Json]:
    """The settings without empty values, for which Docker has defaults."""
    return {key: value for key, value in settings.items() if value}


def _device_requests(gpus: list[str] | None) -> Json:
    """The GPUs in the format of Docker's API; None without a GPU."""
    if not gpus:
        return None
    if gpus == ["all"]:
        return [{"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}]
    # Docker's own answers have a count of 0 for a container whose devices were given by id.
    return [{"Driver": "nvidia", "Count": 0, "DeviceIDs": list(gpus), "Capabilities": [["gpu"]]}]
