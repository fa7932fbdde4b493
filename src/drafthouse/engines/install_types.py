"""What an engine is installed from: packages for an environment, or an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from ..core.forms import DIGEST, IMAGE, TAG, URL, File, Name, Requirement, Version

if TYPE_CHECKING:
    from typing import NotRequired

ImageName = Annotated[str, {"form": IMAGE}]


class MetadataStub(TypedDict):
    """A package that is only named, so that nothing installs it."""

    name: Name
    version: Version


class Install(TypedDict):
    """What an environment of an engine consists of."""

    python_packages: list[Requirement]
    no_deps_packages: NotRequired[list[Requirement]]
    launcher: NotRequired[File]
    lock: NotRequired[File]
    tools: NotRequired[list[File]]
    torch_backend: NotRequired[Name]
    prerelease: NotRequired[bool]
    unpinned: NotRequired[bool]
    extra_index_url: NotRequired[Annotated[str, {"form": URL}]]
    metadata_stub: NotRequired[MetadataStub]
    glibc: NotRequired[str]


class Image(TypedDict):
    """A container image; ``tag`` has {version}, {plugin} and {build} to fill in."""

    name: ImageName
    tag: Annotated[str, {"form": TAG}]
    digest: NotRequired[Annotated[str, {"form": DIGEST}]]


class MethodPackages(TypedDict, total=False):
    """What a method adds to an environment: built there from source, with what the build needs."""

    source_packages: list[Requirement]
    build_packages: list[Requirement]


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
