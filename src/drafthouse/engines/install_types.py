"""Types for the installation of a catalogue's engine: Python packages for an environment, or a container image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from ..core.forms import DIGEST, IMAGE, TAG, URL, File, Name, Requirement, Version

if TYPE_CHECKING:
    from typing import NotRequired

ImageName = Annotated[str, {"form": IMAGE}]


class MetadataStub(TypedDict):
    """A package whose metadata alone is installed, so that a dependency on it counts as satisfied."""

    name: Name
    version: Version


class Install(TypedDict):
    """A Python environment of an engine."""

    python_packages: list[Requirement]
    no_deps_packages: NotRequired[list[Requirement]]  # installed without their dependencies
    launcher: NotRequired[File]  # a program in roles/engine/files, for an engine whose packages have none
    lock: NotRequired[File]  # versions and hashes of all packages
    tools: NotRequired[list[File]]  # further programs in roles/engine/files
    torch_backend: NotRequired[Name]  # of uv pip: which build of PyTorch
    prerelease: NotRequired[bool]  # versions before a release are allowed
    unpinned: NotRequired[bool]  # the bytes may change from day to day; reports say so
    extra_index_url: NotRequired[Annotated[str, {"form": URL}]]
    metadata_stub: NotRequired[MetadataStub]
    glibc: NotRequired[str]  # the oldest version of the C library


class Image(TypedDict):
    """A container image."""

    name: ImageName
    tag: Annotated[str, {"form": TAG}]  # with the placeholders {version}, {plugin} and {build}
    digest: NotRequired[Annotated[str, {"form": DIGEST}]]  # missing: the tag is not pinned


class MethodPackages(TypedDict, total=False):
    """The packages that a speculation method adds to an environment."""

    source_packages: list[Requirement]  # built from source on the box
    build_packages: list[Requirement]  # needed for that build


class EngineInstall(Install, MethodPackages):
    """The environment of an engine with the packages of one method."""


class EngineRelease(TypedDict):
    """A supported version; ``install`` and ``image`` replace the engine's usual ones."""

    reason: str  # why this version, for the user
    pinned: str  # the date of the decision, YYYY-MM-DD
    install: NotRequired[dict[str, Install]]  # by kind of hardware
    image: NotRequired[Image]


class Nightly(TypedDict):
    """The nightly build, which is unpinned."""

    reason: str  # why it is not pinned, for the user
    install: dict[str, Install]  # by kind of hardware
    image: NotRequired[Image]
