"""List and remove the images that Drafthouse built from an engine's image ("derived"), over Docker's socket.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TypedDict

from ...core.docker_api import DockerApi, EngineError
from ...profiles.derived_image import LABEL, REGISTRY

_API_S = 120.0  # for one answer of Docker
_FILTERS = json.dumps({"label": [LABEL]})


class _Listed(TypedDict):
    """An image in the answer of Docker's API, with the one key that is read."""

    RepoTags: list[str] | None  # its names; None or empty for an image without one


def derived_images() -> list[str]:
    """The names of the derived images on this machine; [] if no container engine answers."""
    try:
        images: list[_Listed] = DockerApi(timeout_s=_API_S).call("GET", "/images/json", filters=_FILTERS) or []
    except (OSError, EngineError):
        return []
    names: set[str] = set()
    for image in images:
        names.update(image["RepoTags"] or [])
    return sorted(name for name in names if name.startswith(f"{REGISTRY}/"))


def remove_all() -> tuple[list[str], list[str]]:
    """Remove all derived images; return the names of the removed ones, and of those still in use."""
    removed = []
    in_use = []
    for name in derived_images():
        if _remove(name):
            removed.append(name)
        else:
            in_use.append(name)
    return removed, in_use


def _remove(name: str) -> bool:
    """True if the image is removed, or was gone already; False if it is in use, or no engine answers."""
    try:
        DockerApi(timeout_s=_API_S).call("DELETE", f"/images/{name}")
    except EngineError as error:
        return error.status == HTTPStatus.NOT_FOUND
    except OSError:
        return False
    return True
