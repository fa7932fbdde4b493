"""Whether an image is the one that its tag was at the first pull, asked of the container engine and of the registry.

A tag is a name that its maker may give to other bytes at any time; the digest is the hash of the bytes' own manifest
(https://docs.docker.com/reference/cli/docker/image/pull/, "Pull an image by digest"). Runs on the box. Standard
library only, Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TypedDict

from ...core.docker_api import DockerApi, EngineError
from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.pins import ACCEPT

_ASK_S = 60.0


class _Inspected(TypedDict):
    """An image, as Docker's API tells it: what is read of it."""

    Id: str
    RepoDigests: list[str] | None


class Checked(TypedDict):
    """Whether an image is there, its digest and its own id, and what to pull ('' where nothing is)."""

    present: bool
    digest: str
    id: str
    pull: str


@dataclass(frozen=True)
class Image:
    """An image on the box: its own ``id``, and the ``digests`` under which registries know it (none if loaded)."""

    id: str
    digests: tuple[str, ...]


def on_box(name: str, api: DockerApi | None = None) -> Image | None:
    """The image of that name, None where the box has none. Raises DrafthouseError where the engine refuses."""
    try:
        found: _Inspected = (api or DockerApi(timeout_s=_ASK_S)).call("GET", f"/images/{name}/json")
    except EngineError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise DrafthouseError(_no_answer(name, error.words)) from error
    except OSError as error:
        raise DrafthouseError(_no_answer(name, str(error))) from error
    # The repository of this name first: one image may have come from several.
    named = sorted(found.get("RepoDigests") or [], key=lambda entry: _base(entry) != _base(name))
    return Image(str(found["Id"]), tuple(entry.rpartition("@")[2] for entry in named))


def require_on_box(name: str, api: DockerApi | None = None) -> None:
    """Raise DrafthouseError where the box lacks the image: a run without a network cannot fetch it."""
    if on_box(name, api) is None:
        needed = "the image on the box, since drafthouse_offline is set"
        do = "bring it from a machine that has it: docker image save there, docker image load on the box"
        raise one_problem("image-not-offline", f"no image {name}", needed, do, "image")


def in_registry(name: str, api: DockerApi | None = None) -> str:
    """The digest that a tag has in its registry now; '' where the registry does not say (it wants a login)."""
    try:
        answer = (api or DockerApi(timeout_s=_ASK_S)).call("GET", f"/distribution/{name}/json")
        return str(answer["Descriptor"]["digest"])
    except (OSError, EngineError, KeyError, TypeError):
        return ""


def check(name: str, wanted: str, wanted_id: str = "", api: DockerApi | None = None) -> Checked:
    """Presence, digest and id of an image, and what to pull.

    ``wanted``: the digest it was pinned with, '' at first use. ``wanted_id``: the id that image had, for one that came
    here without a registry. Raises DrafthouseError where the tag means other bytes now, here or in the registry.
    """
    image = on_box(name, api)
    if image is None:
        return {"present": False, "digest": wanted, "id": "", "pull": _name_to_pull(name, wanted, api)}
    if wanted and wanted not in image.digests and (image.digests or image.id != (wanted_id or image.id)):
        raise DrafthouseError(_moved(name, (image.digests or (image.id,))[0], wanted, "on the box"))
    return {"present": True, "digest": wanted or (image.digests or ("",))[0], "id": image.id, "pull": ""}


def _name_to_pull(name: str, wanted: str, api: DockerApi | None) -> str:
    """The image's name, by its pinned digest where there is one. Raises DrafthouseError where the tag has moved."""
    if not wanted or "@" in name:
        return name
    now = in_registry(name, api)
    if now and now != wanted:
        raise DrafthouseError(_moved(name, now, wanted, "in its registry"))
    # By the digest: between the question and the pull a tag may move once more.
    return f"{_parts(name)[0]}@{wanted}"


def name_it(pulled: str, name: str, api: DockerApi | None = None) -> None:
    """Give an image that was pulled by its digest its tag. Raises DrafthouseError."""
    repository, tag = _parts(name)
    try:
        (api or DockerApi(timeout_s=_ASK_S)).call("POST", f"/images/{pulled}/tag", repo=repository, tag=tag)
    except (OSError, EngineError) as error:
        raise DrafthouseError(_no_answer(name, str(error))) from error


def _parts(name: str) -> tuple[str, str]:
    """Repository and tag of ``host:5000/some/name:tag``; without a tag it is `latest`, as for Docker itself."""
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag or "latest"


def _base(name: str) -> str:
    """The last word of an image's repository, without its tag or digest."""
    return _parts(name.partition("@")[0])[0].rpartition("/")[2]


def _moved(name: str, now: str, wanted: str, where: str) -> Problem:
    return Problem(
        "pin-moved",
        f"{name} is {now} {where}",
        f"{wanted}, its digest at the first pull (pins.json)",
        ACCEPT,
        "image",
    )


def _no_answer(name: str, words: str) -> Problem:
    do = "check `systemctl status docker` and `journalctl -u docker -n 50`"
    return Problem(
        "docker-not-answering",
        f"the container engine does not answer about {name}: {words}",
        "its answer",
        do,
        "image",
    )
