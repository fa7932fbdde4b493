"""The very container that served, made again: out of what the container engine itself said of it.

The engine's own answer holds everything, also what a default or a module of Ansible's decided, so that nothing has to
be put together a second time, and the next run finds the container as it left it. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.docker_api import SOCKET, DockerApi, EngineError
from ..core.errors import DrafthouseError, Problem
from .runtimes import LABEL, PREFIX

if TYPE_CHECKING:
    from typing import NotRequired

    from ..profiles.resolved_types import ResolvedProfile

_DEFINITION, _AT = "drafthouse.definition", "drafthouse_at"
_STOP_S = 10
_API_S = 120.0


class Mount(TypedDict, total=False):
    """A mount of a container, as Docker's API lists it."""

    Source: str


class ListedContainer(TypedDict, total=False):
    """A container in Docker's list: what is read of it."""

    Names: list[str]
    State: str
    Labels: dict[str, str] | None
    Mounts: list[Mount] | None


class ContainerConfig(TypedDict):
    """A container's own settings, as Docker's API tells and takes them: what is read of them, and all the others."""

    Image: str
    Labels: dict[str, str]
    Entrypoint: list[str]
    Cmd: list[str]
    Hostname: NotRequired[str]
    Domainname: NotRequired[str]


class HostConfig(TypedDict):
    """How a container stands on its machine: what is changed of it, and all the others."""

    Binds: list[str]


class Running(TypedDict, total=False):
    """What held an arm running: supervisord's configuration, or the container with its image's number."""

    configuration: str
    Config: ContainerConfig
    HostConfig: HostConfig
    Image: str


class WithHost(ContainerConfig):
    """What Docker's API makes a container of."""

    HostConfig: HostConfig


def has_engine() -> bool:
    """Tell whether there is a container engine to ask at all."""
    return Path(SOCKET).exists()


def ours(api: DockerApi | None = None, home: str | Path | None = None) -> dict[str, bool]:
    """Return our arms' containers by name, and whether each runs; {} without an engine. Raises DrafthouseError.

    With ``home`` those alone that were started from this home, for a server that is none: their scripts lie in it. Who
    may not ask the engine, or finds it ended, has none there.
    """
    if not has_engine():
        return {}
    try:
        asked = api or DockerApi(timeout_s=_API_S)
        listed: list[ListedContainer] = _asked(asked, "GET", "/containers/json", all="1", filters=_filters()) or []
    except DrafthouseError:
        if home is None:
            raise
        return {}
    return {
        str(one["Names"][0]).lstrip("/"): one["State"] == "running"
        for one in listed
        if one.get("Names") and (home is None or _is_from(one, Path(home)))
    }


def _is_from(listed: ListedContainer, home: Path) -> bool:
    sources = [Path(mount["Source"]) for mount in listed.get("Mounts") or [] if mount.get("Source")]
    return any(source.is_relative_to(home / "serve") for source in sources)


def _filters() -> str:
    return json.dumps({"label": [LABEL]})


def record(arm: str, api: DockerApi | None = None) -> Running:
    """Return all that is needed to make an arm's container again. Raises DrafthouseError where there is none."""
    found: Running = _asked(api or DockerApi(timeout_s=_API_S), "GET", f"/containers/{PREFIX}{arm}/json")
    config = found["Config"].copy()
    # What the engine gives each container anew.
    config.pop("Hostname", None)
    config.pop("Domainname", None)
    return {"Config": config, "HostConfig": found["HostConfig"], "Image": found["Image"]}


def for_arm(kept: Running, resolved: ResolvedProfile, arm: str) -> Running:
    """Return the record of the other arm: the arms' containers differ in their script and its folder alone."""
    wanted = resolved["arms"][arm]["container"]
    assert wanted is not None  # as every arm of a profile that runs in containers has one
    labels = {
        **kept["Config"]["Labels"],
        LABEL: arm,
        _AT: f"{PREFIX}{arm} {resolved['site']['port']}",
        _DEFINITION: definition(resolved, arm),
    }
    config: ContainerConfig = {
        **kept["Config"],
        "Entrypoint": wanted["entrypoint"],
        "Cmd": wanted["command"],
        "Labels": labels,
    }
    return {**kept, "Config": config, "HostConfig": {**kept["HostConfig"], "Binds": list(wanted["mounts"])}}


def definition(resolved: ResolvedProfile, arm: str) -> str:
    """Return the hash by which the role `serve` knows a container that is as it should be."""
    data = resolved["arms"][arm]
    text = "".join(file["content"] for file in data["files"]) + json.dumps(data["container"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def drifted(arm: str, kept: Running | None) -> str:
    """Return why what runs is not that container alone, '' where it is. Raises DrafthouseError."""
    api = DockerApi(timeout_s=_API_S)
    name, there = f"{PREFIX}{arm}", ours(api)
    if not there.get(name):
        return f"the container {name} does not run"
    others = sorted(other for other, runs in there.items() if runs and other != name)
    if others:
        return f"{', '.join(others)} runs beside {name}"
    if kept and _marks_of(record(arm, api)) != _marks_of(kept):
        return f"the container {name} is another one"
    return ""


def _marks_of(kept: Running) -> tuple[str | None, str | None]:
    """Return what the role `serve` knows a container by: what it is, and at which port it is published.

    Measured beside the other arm, the same container is published at another port.
    """
    labels = kept["Config"].get("Labels") or {}
    return labels.get(_DEFINITION), labels.get(_AT)


def look_for_image(kept: Running) -> None:
    """Raise DrafthouseError where the image of a recorded container is gone."""
    api = DockerApi(timeout_s=_API_S)
    try:
        api.call("GET", f"/images/{kept['Image']}/json")
    except EngineError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            return
        raise DrafthouseError(
            Problem(
                "image-gone",
                f"the image {kept['Config']['Image']} ({kept['Image']}) is gone: {error}",
                "the image that served",
                f"docker pull {kept['Config']['Image']}; where that is another image by now, serve a profile anew",
                "Docker",
            )
        ) from error
    except OSError:
        return  # whoever starts the container says what is wrong with the engine


def run_alone(arm: str, kept: Running) -> None:
    """Make an arm's container run as recorded, and no other of ours; one that does is left alone.

    Raises DrafthouseError.
    """
    api = DockerApi(timeout_s=_API_S)
    name, there = f"{PREFIX}{arm}", ours(api)
    same = name in there and _marks_of(record(arm, api)) == _marks_of(kept)
    _remove([other for other in there if other != name or not same])
    if not same:
        _asked(api, "POST", "/containers/create", _body(api, kept), name=name)
    if not (same and there[name]):
        _asked(api, "POST", f"/containers/{name}/start")


def remove_of(home: str | Path, grace_s: int = _STOP_S) -> list[str]:
    """End the containers that were started from this home, and return their names. Raises DrafthouseError."""
    names = list(ours(DockerApi(timeout_s=_API_S), home))
    _remove(names, grace_s)
    return names


def _remove(names: Sequence[str], grace_s: int = _STOP_S) -> None:
    """Remove containers at the same time: one that does not heed the signal takes all of ``grace_s`` seconds."""

    def remove(name: str) -> None:
        api = DockerApi(timeout_s=_API_S)
        _asked(api, "POST", f"/containers/{name}/stop", t=str(grace_s))
        _asked(api, "DELETE", f"/containers/{name}", force="true")

    if names:
        with ThreadPoolExecutor(len(names)) as several:
            list(several.map(remove, names))


def _body(api: DockerApi, kept: Running) -> WithHost:
    """Return what is asked for: under the image's name where that is still the same image, else under its number."""
    config = kept["Config"].copy()
    try:
        same = api.call("GET", f"/images/{config['Image']}/json")["Id"] == kept["Image"]
    except (OSError, EngineError, KeyError, TypeError):
        same = False
    if not same:
        config["Image"] = kept["Image"]
    return {**config, "HostConfig": kept["HostConfig"]}


def _asked(api: DockerApi, method: str, path: str, body: object = None, **query: str) -> Any:
    try:
        return api.call(method, path, body, **query)
    except (OSError, EngineError) as error:
        raise DrafthouseError(
            Problem(
                "docker-refused",
                f"the container engine refuses {method} {path}: {error}",
                "the container that served, as it was",
                "look with `docker ps -a` and `journalctl -u docker -n 50`; an image that is gone: docker pull",
                "Docker",
            )
        ) from error
