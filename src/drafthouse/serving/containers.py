"""Containers of ours: found, made as defined (`profiles/container.py`), recorded for a release, made again, ended.

Asked over Docker's socket, so that the box's own Python can bring back a server. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.docker_api import SOCKET, DockerApi, EngineError
from ..core.errors import DrafthouseError, Problem, one_problem
from ..profiles.container import DEFINITION, LABEL, PLACE, PREFIX, arm_container, engine_words

if TYPE_CHECKING:
    from drafthouse.core.documents import Json
    from drafthouse.profiles.container import Container, EngineConfig, EngineWords
    from drafthouse.profiles.resolved_types import ResolvedProfile

_STOP_S = 10
_API_S = 120.0
# An SSH session of another user than root may lack the latter two.
_PROGRAMS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


class Mount(TypedDict, total=False):
    """A mount of a container, as Docker's API lists it."""

    Source: str


class Port(TypedDict, total=False):
    """A port of a container, as Docker's API lists it."""

    PublicPort: int


class ListedContainer(TypedDict, total=False):
    """A container in Docker's list: what is read of it."""

    Id: str
    Names: list[str]
    State: str
    Labels: dict[str, str] | None
    Mounts: list[Mount] | None
    Ports: list[Port] | None


class ContainerState(TypedDict):
    """Whether a container runs, as Docker's API tells it: what is read of it."""

    Running: bool


class Inspected(TypedDict):
    """A container, as Docker's API tells it: what is read of it."""

    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: str
    State: ContainerState


class Running(TypedDict, total=False):
    """What held an arm running: supervisord's configuration, or the container with its image's number."""

    configuration: str
    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: str


@dataclass
class Plan:
    """What makes the wanted containers run, and no other of their label; all by name."""

    remove: list[str] = field(default_factory=list)
    create: dict[str, EngineWords] = field(default_factory=dict)
    start: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.remove or self.start or self.restart)


def has_engine() -> bool:
    """Tell whether there is a container engine to ask at all: one that was removed leaves its socket behind."""
    return Path(SOCKET).exists() and (shutil.which("dockerd", path=_PROGRAMS) is not None or _listens(SOCKET))


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:  # a right that is missing: whoever asks says so
            return True
    return True


def ours(api: DockerApi | None = None, home: str | Path | None = None, label: str = LABEL) -> dict[str, bool]:
    """The containers with our label by name, and whether each runs; {} without an engine.

    With ``home`` those alone that were started from this home, for a server that is none: their scripts lie in it. Who
    may not ask the engine, or finds it ended, has none there. Raises DrafthouseError.
    """
    if not has_engine():
        return {}
    try:
        listed = _listed(api or _api(), label)
    except DrafthouseError:
        if home is None:
            raise
        return {}
    runs: dict[str, bool] = {}
    for container in listed:
        names = container.get("Names")
        if names and (home is None or _is_from(container, Path(home))):
            runs[str(names[0]).lstrip("/")] = container["State"] == "running"
    return runs


def published_ports() -> set[int]:
    """The ports of the box that our arms' containers publish; none where no engine answers."""
    if not has_engine():
        return set()
    try:
        listed = _listed(DockerApi(timeout_s=10.0), LABEL, stopped_too=False)
    except DrafthouseError:
        return set()
    published: set[int] = set()
    for container in listed:
        for port in container.get("Ports") or []:
            if "PublicPort" in port:
                published.add(port["PublicPort"])
    return published


def _listed(api: DockerApi, label: str, stopped_too: bool = True) -> list[ListedContainer]:
    filters = json.dumps({"label": [label]})
    return list(_asked(api, "GET", "/containers/json", all=str(int(stopped_too)), filters=filters) or [])


def _is_from(listed: ListedContainer, home: Path) -> bool:
    for mount in listed.get("Mounts") or []:
        source = mount.get("Source")
        if source and Path(source).is_relative_to(home / "serve"):
            return True
    return False


# --- as a run wants them ----------------------------------------------------------------------------


def plan(wanted: Sequence[Container], label: str, fresh: bool = False) -> Plan:
    """What is to be done for exactly the wanted containers of ``label`` to run. Raises DrafthouseError.

    A container that is as defined is left alone, or restarted where it shall be ``fresh``. Another one of the same name
    goes, with a label or without.
    """
    if not wanted and not has_engine():
        return Plan()
    api, made = _api(), Plan()
    names = {container["name"] for container in wanted}
    made.remove = [name for name in ours(api, label=label) if name not in names]
    for container in wanted:
        name, words = container["name"], engine_words(container)
        found = _inspected(api, name)
        if found is None or not _is_as_defined(api, words, found):
            if found:
                made.remove.append(name)
            made.create[name] = words
            made.start.append(name)
        elif not found["State"]["Running"]:
            made.start.append(name)
        elif fresh:
            made.restart.append(name)
    return made


def carry_out(made: Plan, removed: bool = False) -> None:
    """Do what is planned; with ``removed`` what had to go is gone already. Raises DrafthouseError."""
    api = _api()
    if not removed:
        remove(made.remove)
    for name, words in made.create.items():
        _create(api, name, words)
    for name in made.start:
        _asked(api, "POST", f"/containers/{name}/start")
    for name in made.restart:
        _asked(api, "POST", f"/containers/{name}/restart")


def _is_as_defined(api: DockerApi, words: EngineWords, found: Inspected) -> bool:
    image = _image_id(api, words["Config"]["Image"])
    if image is not None and image != found["Image"]:
        return False
    return _holds(words["Config"], found["Config"]) and _holds(words["HostConfig"], found["HostConfig"])


def _holds(wanted: Any, found: Any) -> bool:
    """Tell whether Docker tells all that is wanted, beside what the image and Docker itself have added."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return False
        for key, value in wanted.items():
            if key == "Env":
                if not set(value) <= set(found.get(key) or ()):
                    return False
            elif key not in found or not _holds(value, found[key]):
                return False
        return True
    if isinstance(wanted, list):
        return isinstance(found, list) and len(wanted) == len(found) and all(map(_holds, wanted, found))
    return bool(wanted == found)


# --- as a release keeps them ------------------------------------------------------------------------


def record(resolved: ResolvedProfile, arm: str) -> Running:
    """What makes an arm's container again, of the very image of the one that stands there.

    Raises DrafthouseError where there is none.
    """
    found: Inspected = _asked(_api(), "GET", f"/containers/{PREFIX}{arm}/json")
    return of_image(found["Image"], resolved, arm)


def of_image(image_id: str, resolved: ResolvedProfile, arm: str) -> Running:
    """What makes an arm's container, of the image with that id."""
    words = engine_words(arm_container(resolved, arm))
    return {"Config": words["Config"], "HostConfig": words["HostConfig"], "Image": image_id}


def drifted(arm: str, kept: Running | None) -> str:
    """Why what runs is not that container alone, '' where it is. Raises DrafthouseError."""
    api = _api()
    name, there = f"{PREFIX}{arm}", ours(api)
    if not there.get(name):
        return f"the container {name} is not running"
    others = sorted(other for other, runs in there.items() if runs and other != name)
    if others:
        return f"{', '.join(others)} also runs, besides {name}"
    if kept and _marks_of(_inspected(api, name)) != _marks_of(kept):
        return f"the container {name} was replaced by another one"
    return ""


def run_alone(arm: str, kept: Running) -> None:
    """Make an arm's container run as recorded, and no other of ours; one that does is left alone.

    An older version recorded all that Docker had told of the container, and that is what is made again. Raises
    DrafthouseError.
    """
    api = _api()
    name, there = f"{PREFIX}{arm}", ours(api)
    same = name in there and _marks_of(_inspected(api, name)) == _marks_of(kept)
    made = Plan(remove=[other for other in there if other != name or not same])
    if not same:
        config = kept["Config"].copy()
        # What Docker gives each container anew.
        config.pop("Hostname", None)
        config.pop("Domainname", None)
        # By its name where that still is the same image, else by its id.
        if _image_id(api, config["Image"]) != kept["Image"]:
            config["Image"] = kept["Image"]
        made.create[name] = {"Config": config, "HostConfig": kept["HostConfig"]}
    if not (same and there[name]):
        made.start.append(name)
    carry_out(made)


def look_for_image(kept: Running) -> None:
    """Raise DrafthouseError where the image of a recorded container is gone."""
    api = _api()
    try:
        api.call("GET", f"/images/{kept['Image']}/json")
    except EngineError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            return
        raise one_problem(
            "image-gone",
            f"the image {kept['Config']['Image']} ({kept['Image']}) is gone: {error}",
            "the image that served",
            f"docker pull {kept['Config']['Image']}; if that is a different image now, serve a profile again",
            "Docker",
        ) from error
    except OSError:
        return  # whoever starts the container says what is wrong with the engine


def _marks_of(kept: Running | Inspected | None) -> tuple[str | None, str | None]:
    """What a container is known by: what it is made of, and at which port it is published.

    Measured beside the other arm, the same container is published at another port.
    """
    if not kept:
        return None, None
    labels = kept["Config"].get("Labels") or {}
    return labels.get(DEFINITION), labels.get(PLACE)


# --- one request each -------------------------------------------------------------------------------


def remove_of(home: str | Path, grace_s: int = _STOP_S) -> list[str]:
    """End the containers that were started from this home, and return their names. Raises DrafthouseError."""
    names = list(ours(_api(), home))
    remove(names, grace_s)
    return names


def remove(names: Sequence[str], grace_s: int = _STOP_S) -> None:
    """Remove containers at the same time: one that does not heed the signal takes all of ``grace_s`` seconds.

    Raises DrafthouseError.
    """

    def end(name: str) -> None:
        api = _api()
        _asked(api, "POST", f"/containers/{name}/stop", t=str(grace_s))
        _asked(api, "DELETE", f"/containers/{name}", force="true")

    if names:
        with ThreadPoolExecutor(len(names)) as several:
            list(several.map(end, names))


def _api() -> DockerApi:
    return DockerApi(timeout_s=_API_S)


def _create(api: DockerApi, name: str, words: EngineWords) -> None:
    _asked(api, "POST", "/containers/create", {**words["Config"], "HostConfig": words["HostConfig"]}, name=name)


def _inspected(api: DockerApi, name: str) -> Inspected | None:
    """All that Docker tells of a container, None where there is none. Raises DrafthouseError."""
    try:
        found: Inspected = api.call("GET", f"/containers/{name}/json")
        return found
    except EngineError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise DrafthouseError(_refused("GET", name, error)) from error
    except OSError as error:
        raise DrafthouseError(_refused("GET", name, error)) from error


def _image_id(api: DockerApi, name: str) -> str | None:
    try:
        return str(api.call("GET", f"/images/{name}/json")["Id"])
    except (OSError, EngineError, KeyError, TypeError):
        return None


def _asked(api: DockerApi, method: str, path: str, body: object = None, **query: str) -> Any:
    try:
        return api.call(method, path, body, **query)
    except (OSError, EngineError) as error:
        raise DrafthouseError(_refused(method, path, error)) from error


def _refused(method: str, path: str, error: Exception) -> Problem:
    return Problem(
        "docker-refused",
        f"the container engine refused {method} {path}: {error}",
        "the containers as defined",
        "check `docker ps -a` and `journalctl -u docker -n 50`; if an image is missing: docker pull",
        "Docker",
    )
