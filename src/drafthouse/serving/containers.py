"""List, create, record, recreate and remove Drafthouse's Docker containers, over Docker's socket.

`profiles/container.py` defines the containers. An arm is one of the two servers, baseline or speculative; its container
has the label `LABEL`. A run starts the containers of its profile; a rollback starts one as its release, a profile that
served before, recorded it. Standard library only: the Python of the box, the host that serves, runs it for a rollback.
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

_STOP_S = 10  # seconds that a container has to end before it is killed; Docker's default
_API_S = 120.0  # seconds that one API call may take
# The PATH of an SSH session that is not root's may lack the two folders of system programs.
_PROGRAMS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


class Mount(TypedDict, total=False):
    """A mount in Docker's list of containers."""

    Source: str  # the file or folder on the box


class Port(TypedDict, total=False):
    """A port in Docker's list of containers; ``PublicPort`` is missing if it is not published."""

    PublicPort: int


class ListedContainer(TypedDict, total=False):
    """A container in Docker's list: the fields that are read here."""

    Id: str
    Names: list[str]  # each with a slash in front
    State: str  # such as "running"
    Labels: dict[str, str] | None
    Mounts: list[Mount] | None
    Ports: list[Port] | None


class ContainerState(TypedDict):
    """The state of a container as Docker's API returns it: the field that is read here."""

    Running: bool


class Inspected(TypedDict):
    """A container as Docker's API returns it: the fields that are read here. ``Image`` is the image's id."""

    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: str
    State: ContainerState


class ArmRecord(TypedDict, total=False):
    """How a release ran an arm: as a process (``configuration`` only) or as a container (the other fields)."""

    configuration: str  # of supervisord
    Config: EngineConfig
    HostConfig: Mapping[str, Json]
    Image: str  # the image's id


@dataclass
class Plan:
    """Containers to remove, create, start and restart, by name, so that exactly the wanted ones of a label run."""

    remove: list[str] = field(default_factory=list)
    create: dict[str, EngineWords] = field(default_factory=dict)  # in `start` too: Docker creates them stopped
    start: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        """True if the plan has anything to do."""
        return bool(self.remove or self.start or self.restart)


def has_engine() -> bool:
    """True if Docker is installed or answers. Its socket file alone proves nothing: an uninstallation leaves it."""
    return Path(SOCKET).exists() and (shutil.which("dockerd", path=_PROGRAMS) is not None or _listens(SOCKET))


def _listens(path: str) -> bool:
    """True if a program accepts connections at the socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:  # no permission to connect: the next API call reports that
            return True
    return True


def list_containers(
    api: DockerApi | None = None, home: str | Path | None = None, label: str = LABEL
) -> dict[str, bool]:
    """The containers with ``label``: name -> True if it runs; {} without Docker. Raises DrafthouseError.

    With ``home``, only containers that mount the scripts of that home folder, and {} instead of an error if Docker
    does not answer: a server without containers must not depend on Docker.
    """
    if not has_engine():
        return {}
    try:
        listed = _query_containers(api or _api(), label)
    except DrafthouseError:
        if home is None:
            raise
        return {}
    is_running: dict[str, bool] = {}
    for container in listed:
        names = container.get("Names")
        if names and (home is None or _is_from(container, Path(home))):
            is_running[str(names[0]).lstrip("/")] = container["State"] == "running"
    return is_running


def published_ports() -> set[int]:
    """The ports of the box that running arm containers publish; none if Docker does not answer."""
    if not has_engine():
        return set()
    try:
        listed = _query_containers(DockerApi(timeout_s=10.0), LABEL, stopped_too=False)
    except DrafthouseError:
        return set()
    published: set[int] = set()
    for container in listed:
        for port in container.get("Ports") or []:
            if "PublicPort" in port:
                published.add(port["PublicPort"])
    return published


def _query_containers(api: DockerApi, label: str, stopped_too: bool = True) -> list[ListedContainer]:
    filters = json.dumps({"label": [label]})
    return list(_call(api, "GET", "/containers/json", all=str(int(stopped_too)), filters=filters) or [])


def _is_from(container: ListedContainer, home: Path) -> bool:
    """True if a container was started from ``home``: it mounts its start script, in the folder `serve` there."""
    for mount in container.get("Mounts") or []:
        source = mount.get("Source")
        if source and Path(source).is_relative_to(home / "serve"):
            return True
    return False


# --- containers of a run ----------------------------------------------------------------------------


def plan(wanted: Sequence[Container], label: str, fresh: bool = False) -> Plan:
    """The changes after which exactly the ``wanted`` containers of ``label`` run. Raises DrafthouseError.

    - A container of the label that is not wanted is removed.
    - A wanted one that is missing is created. One that differs from its definition, or has its name without the label,
      is replaced.
    - One that matches stays: it is started if it does not run, and restarted if it does and ``fresh`` is true.
    """
    # A box without Docker has no containers to remove. If some are wanted, the first call reports that it is missing.
    if not wanted and not has_engine():
        return Plan()
    api = _api()
    changes = Plan()
    names = {container["name"] for container in wanted}
    changes.remove = [name for name in list_containers(api, label=label) if name not in names]
    for container in wanted:
        name = container["name"]
        settings = engine_words(container)
        present = _inspect(api, name)
        if present is None or not _is_as_defined(api, settings, present):
            if present:
                changes.remove.append(name)
            changes.create[name] = settings
            changes.start.append(name)
        elif not present["State"]["Running"]:
            changes.start.append(name)
        elif fresh:
            changes.restart.append(name)
    return changes


def carry_out(changes: Plan, removed: bool = False) -> None:
    """Apply a plan; ``removed``: its containers to remove were removed before. Raises DrafthouseError."""
    api = _api()
    if not removed:
        remove(changes.remove)
    for name, settings in changes.create.items():
        _create(api, name, settings)
    for name in changes.start:
        _call(api, "POST", f"/containers/{name}/start")
    for name in changes.restart:
        _call(api, "POST", f"/containers/{name}/restart")


def _is_as_defined(api: DockerApi, settings: EngineWords, present: Inspected) -> bool:
    """True if a container has its image and its settings; an image that is not on the box is not compared."""
    image = _image_id(api, settings["Config"]["Image"])
    if image is not None and image != present["Image"]:
        return False
    return _contains(present["Config"], settings["Config"]) and _contains(present["HostConfig"], settings["HostConfig"])


def _contains(present: Any, wanted: Any) -> bool:
    """True if ``present`` has all values of ``wanted``; it has more, which Docker and the image add."""
    if isinstance(wanted, Mapping):
        if not isinstance(present, Mapping):
            return False
        for key, value in wanted.items():
            # The image adds variables, so the wanted ones are a part; any other list must be equal.
            if key == "Env":
                if not set(value) <= set(present.get(key) or ()):
                    return False
            elif key not in present or not _contains(present[key], value):
                return False
        return True
    if isinstance(wanted, list):
        return isinstance(present, list) and len(wanted) == len(present) and all(map(_contains, present, wanted))
    return bool(wanted == present)


# --- containers of a release ------------------------------------------------------------------------


def record_of_present(resolved: ResolvedProfile, arm: str) -> ArmRecord:
    """The record of an arm's present container, with the id of its image. Raises DrafthouseError if there is none."""
    present: Inspected = _call(_api(), "GET", f"/containers/{PREFIX}{arm}/json")
    return record_of_image(present["Image"], resolved, arm)


def record_of_image(image_id: str, resolved: ResolvedProfile, arm: str) -> ArmRecord:
    """The record from which `run_alone` creates an arm's container, with the image ``image_id``."""
    settings = engine_words(arm_container(resolved, arm))
    return {"Config": settings["Config"], "HostConfig": settings["HostConfig"], "Image": image_id}


def drifted(arm: str, recorded: ArmRecord | None) -> str:
    """Why not exactly the ``recorded`` container of ``arm`` runs; '' if it does. Raises DrafthouseError.

    Without a record (None), any container of the arm will do.
    """
    api = _api()
    name = f"{PREFIX}{arm}"
    is_running = list_containers(api)
    if not is_running.get(name):
        return f"the container {name} is not running"
    unexpected = sorted(other for other, runs in is_running.items() if runs and other != name)
    if unexpected:
        return f"{', '.join(unexpected)} also runs, besides {name}"
    if recorded and _identity_of(_inspect(api, name)) != _identity_of(recorded):
        return f"the container {name} was replaced by another one"
    return ""


def run_alone(arm: str, recorded: ArmRecord) -> None:
    """Run an arm's container as recorded, and remove the other arms'; a container that matches is left alone.

    Records of older versions have every setting that Docker had returned, and are used as they are. Raises
    DrafthouseError.
    """
    api = _api()
    name = f"{PREFIX}{arm}"
    is_running = list_containers(api)
    is_recorded_one = name in is_running and _identity_of(_inspect(api, name)) == _identity_of(recorded)
    changes = Plan(remove=[other for other in is_running if other != name or not is_recorded_one])
    if not is_recorded_one:
        config = recorded["Config"].copy()
        # Docker assigns these two to each new container.
        config.pop("Hostname", None)
        config.pop("Domainname", None)
        # The name of the image is used while it still stands for the recorded image, else the id.
        if _image_id(api, config["Image"]) != recorded["Image"]:
            config["Image"] = recorded["Image"]
        changes.create[name] = {"Config": config, "HostConfig": recorded["HostConfig"]}
    if not (is_recorded_one and is_running[name]):
        changes.start.append(name)
    carry_out(changes)


def require_image(recorded: ArmRecord) -> None:
    """Raise DrafthouseError if the image of a recorded container is no longer on the box."""
    api = _api()
    try:
        api.call("GET", f"/images/{recorded['Image']}/json")
    except EngineError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            return  # says nothing about the image: starting the container reports it
        raise one_problem(
            "image-gone",
            f"the image {recorded['Config']['Image']} ({recorded['Image']}) is gone: {error}",
            "the image that served",
            f"docker pull {recorded['Config']['Image']}; if that is a different image now, serve a profile again",
            "Docker",
        ) from error
    except OSError:
        return  # Docker does not answer: starting the container reports that


def _identity_of(container: ArmRecord | Inspected | None) -> tuple[str | None, str | None]:
    """Two labels of a container: the hash of its definition, and its name with its published port; None if missing.

    The port counts: while both arms run side by side for a measurement, one of them has another port.
    """
    if not container:
        return None, None
    labels = container["Config"].get("Labels") or {}
    return labels.get(DEFINITION), labels.get(PLACE)


def remove_containers_of(home: str | Path, grace_s: int = _STOP_S) -> list[str]:
    """Remove the arm containers that were started from ``home``; return their names. Raises DrafthouseError."""
    names = list(list_containers(_api(), home))
    remove(names, grace_s)
    return names


def remove(names: Sequence[str], grace_s: int = _STOP_S) -> None:
    """Stop and remove containers in parallel, kill them after ``grace_s`` seconds. Raises DrafthouseError."""

    def stop_and_delete(name: str) -> None:
        api = _api()
        _call(api, "POST", f"/containers/{name}/stop", t=str(grace_s))
        _call(api, "DELETE", f"/containers/{name}", force="true")

    if names:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(stop_and_delete, names))


def _api() -> DockerApi:
    return DockerApi(timeout_s=_API_S)


def _create(api: DockerApi, name: str, settings: EngineWords) -> None:
    _call(api, "POST", "/containers/create", {**settings["Config"], "HostConfig": settings["HostConfig"]}, name=name)


def _inspect(api: DockerApi, name: str) -> Inspected | None:
    """Docker's description of a container; None if there is no such container. Raises DrafthouseError."""
    try:
        container: Inspected = api.call("GET", f"/containers/{name}/json")
        return container
    except EngineError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise DrafthouseError(_refused("GET", name, error)) from error
    except OSError as error:
        raise DrafthouseError(_refused("GET", name, error)) from error


def _image_id(api: DockerApi, name: str) -> str | None:
    """The id of an image; None if it is not on the box, or Docker does not say."""
    try:
        return str(api.call("GET", f"/images/{name}/json")["Id"])
    except (OSError, EngineError, KeyError, TypeError):
        return None


def _call(api: DockerApi, method: str, path: str, body: object = None, **query: str) -> Any:
    """Docker's answer to a call. Raises DrafthouseError."""
    try:
        return api.call(method, path, body, **query)
    except (OSError, EngineError) as error:
        raise DrafthouseError(_refused(method, path, error)) from error


def _refused(method: str, path: str, error: Exception) -> Problem:
    """Problem of a call that Docker refused or did not answer."""
    return Problem(
        "docker-refused",
        f"the container engine refused {method} {path}: {error}",
        "the containers as defined",
        "check `docker ps -a` and `journalctl -u docker -n 50`; if an image is missing: docker pull",
        "Docker",
    )
