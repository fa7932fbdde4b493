"""Check that an image tag still means the image of the first pull, on the machine and in the registry.

A publisher may move a tag to another image at any time. The digest is the hash of the image's manifest and cannot
move (https://docs.docker.com/reference/cli/docker/image/pull/, "Pull an image by digest"). Runs on the machine that
serves. Standard library only, Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TypedDict

from ...core.docker_api import DockerApi, EngineError
from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.pins import ACCEPT

_API_TIMEOUT_S = 60.0


class _Inspected(TypedDict):
    """An image in the answer of Docker's API, with the keys that are read."""

    Id: str
    RepoDigests: list[str] | None  # each REPOSITORY@DIGEST; None or empty for an image that came from no registry


class Checked(TypedDict):
    """Result of `check`."""

    present: bool  # on the machine
    digest: str  # in the registry: the pinned one, else that of the image here; '' if unknown
    id: str  # on the machine; '' if it is not present
    pull: str  # the name to pull; '' if the image is present


@dataclass(frozen=True)
class Image:
    """An image on the machine: its local ``id``, and its registry ``digests`` (empty after `docker image load`)."""

    id: str
    digests: tuple[str, ...]


def on_box(name: str, api: DockerApi | None = None) -> Image | None:
    """The image with that name; None if the machine has none. Raises DrafthouseError if the engine fails."""
    try:
        inspected: _Inspected = (api or DockerApi(timeout_s=_API_TIMEOUT_S)).call("GET", f"/images/{name}/json")
    except EngineError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise DrafthouseError(_no_answer(name, error.words)) from error
    except OSError as error:
        raise DrafthouseError(_no_answer(name, str(error))) from error
    # An image may come from several repositories: the one with this name goes first.
    digest_names = sorted(inspected.get("RepoDigests") or [], key=lambda entry: _base_name(entry) != _base_name(name))
    return Image(str(inspected["Id"]), tuple(entry.rpartition("@")[2] for entry in digest_names))


def require_on_box(name: str, api: DockerApi | None = None) -> None:
    """Raise DrafthouseError if the machine lacks the image, since an offline run cannot pull it."""
    if on_box(name, api) is None:
        needed = "the image on the box, since drafthouse_offline is set"
        do = "bring it from a machine that has it: docker image save there, docker image load on the box"
        raise one_problem("image-not-offline", f"no image {name}", needed, do, "image")


def in_registry(name: str, api: DockerApi | None = None) -> str:
    """The current digest of a tag in its registry, which Docker asks; '' if that fails, as for a required login."""
    try:
        answer = (api or DockerApi(timeout_s=_API_TIMEOUT_S)).call("GET", f"/distribution/{name}/json")
        return str(answer["Descriptor"]["digest"])
    except (OSError, EngineError, KeyError, TypeError):
        return ""


def check(name: str, wanted: str, wanted_id: str = "", api: DockerApi | None = None) -> Checked:
    """Presence, digest and id of an image, and the name to pull.

    ``wanted`` is the pinned digest, '' at first use. ``wanted_id`` is the id at that time, for an image that was
    loaded without a registry. Raises DrafthouseError if the tag now means another image, locally or in the registry.
    """
    image = on_box(name, api)
    if image is None:
        return {"present": False, "digest": wanted, "id": "", "pull": _name_to_pull(name, wanted, api)}
    moved = bool(wanted) and wanted not in image.digests
    if moved and not image.digests:  # a loaded image has no digest: its id at first use decides, if one was recorded
        moved = bool(wanted_id) and image.id != wanted_id
    first_digest = next(iter(image.digests), "")
    if moved:
        raise DrafthouseError(_tag_moved(name, first_digest or image.id, wanted, "on the box"))
    return {"present": True, "digest": wanted or first_digest, "id": image.id, "pull": ""}


def _name_to_pull(name: str, wanted: str, api: DockerApi | None) -> str:
    """The name to pull, with the pinned digest if there is one. Raises DrafthouseError if the tag has moved."""
    if not wanted or "@" in name:
        return name
    current = in_registry(name, api)
    if current and current != wanted:
        raise DrafthouseError(_tag_moved(name, current, wanted, "in its registry"))
    # With the digest, because the tag may move between this check and the pull.
    repository, _ = _repository_and_tag(name)
    return f"{repository}@{wanted}"


def tag_pulled(pulled: str, name: str, api: DockerApi | None = None) -> None:
    """Tag an image that was pulled by its digest. Raises DrafthouseError."""
    repository, tag = _repository_and_tag(name)
    try:
        (api or DockerApi(timeout_s=_API_TIMEOUT_S)).call("POST", f"/images/{pulled}/tag", repo=repository, tag=tag)
    except (OSError, EngineError) as error:
        raise DrafthouseError(_no_answer(name, str(error))) from error


def _repository_and_tag(name: str) -> tuple[str, str]:
    """Repository and tag of a name like ``host:5000/some/name:tag``; the default tag is `latest`, as in Docker."""
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag or "latest"


def _base_name(name: str) -> str:
    """The last path component of an image's repository, without tag and digest."""
    repository, _ = _repository_and_tag(name.partition("@")[0])
    return repository.rpartition("/")[2]


def _tag_moved(name: str, digest: str, wanted: str, where: str) -> Problem:
    """The problem that a tag means another image than the pinned one, on the box or in its registry (``where``)."""
    found = f"{name} is {digest} {where}"
    needed = f"{wanted}, its digest at the first pull (pins.json)"
    return Problem("pin-moved", found, needed, ACCEPT, "image")


def _no_answer(name: str, words: str) -> Problem:
    """The problem that the engine did not answer about an image; ``words`` is the error's text."""
    do = "check `systemctl status docker` and `journalctl -u docker -n 50`"
    return Problem(
        "docker-not-answering", f"the container engine does not answer about {name}: {words}", "its answer", do, "image"
    )
