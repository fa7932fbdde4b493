"""What an engine is installed from: packages for an environment, or an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from ..core.forms import IMAGE, TAG, File

if TYPE_CHECKING:
    from typing import NotRequired

ImageName = Annotated[str, {"form": IMAGE}]


class MetadataStub(TypedDict):
    """A package that is only named, so that nothing installs it."""

    name: str
    version: str


class Install(TypedDict):
    """What an environment of an engine consists of."""

    python_packages: list[str]
    no_deps_packages: NotRequired[list[str]]
    launcher: NotRequired[File]
    lock: NotRequired[File]
    tools: NotRequired[list[File]]
    torch_backend: NotRequired[str]
    prerelease: NotRequired[bool]
    unpinned: NotRequired[bool]
    extra_index_url: NotRequired[str]
    metadata_stub: NotRequired[MetadataStub]
    glibc: NotRequired[str]


class Image(TypedDict):
    """A container image; ``tag`` has {version}, {plugin} and {build} to fill in."""

    name: ImageName
    tag: Annotated[str, {"form": TAG}]
    digest: NotRequired[ImageName]


class MethodPackages(TypedDict, total=False):
    """What a method adds to an environment: built there from source, with what the build needs."""

    source_packages: list[str]
    build_packages: list[str]


class EngineInstall(Install, MethodPackages):
    """What an environment consists of for one method."""


class EngineRelease(TypedDict):
    """A release that is not installed as the others are."""

    reason: str
    pinned: str
    install: NotRequired[dict[str, Install]]
    image: NotRequired[Image]


class Nightly(TypedDict):
    """The unreleased build."""

    reason: str
    install: dict[str, Install]
    image: NotRequired[Image]
