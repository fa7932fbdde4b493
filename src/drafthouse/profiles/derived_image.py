"""An image with the packages that a method adds to the engine: the engine's image and a Containerfile of two lines.

Its name has a hash of the Containerfile: an image of that name needs no check, and a change makes a new image. It is
built on the box (`host.docker.derived_image`).
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.requirement_lines import all_have_hashes, with_hashes

if TYPE_CHECKING:
    from drafthouse.engines.install_types import MethodPackages
    from drafthouse.profiles.resolved_types import DerivedImage

# Docker asks no public registry for such a name: a missing image is an error, never somebody else's image.
REGISTRY = "localhost"
LABEL = "drafthouse.derived"  # of every derived image, so that they can be found
_UV = "uv pip install --system --no-cache --no-deps"


@dataclass(frozen=True)
class Derived:
    """An image to build from the image ``base``."""

    name: str  # with a tag that ends in a hash of the Containerfile
    base: str
    containerfile: str  # its text
    packages: tuple[str, ...]  # that it adds, with versions

    def as_dict(self) -> DerivedImage:
        """The image as plain data."""
        return {
            "name": self.name,
            "base": self.base,
            "containerfile": self.containerfile,
            "packages": list(self.packages),
        }


def derived_from(
    base: str,
    *,
    engine: str,
    version: str,
    method: str,
    adds: MethodPackages,
    hashes: Mapping[str, Sequence[str]] | None = None,
) -> Derived | None:
    """The image for a ``method`` that adds packages to the image ``base``; None for a method that adds none.

    ``adds``: the method's `source_packages` and `build_packages`. They are built without isolation, which would
    download another torch. ``hashes``: those of packages, by ``name==version``.
    """
    packages = tuple(adds.get("source_packages") or ())
    if not packages:
        return None
    steps = []
    if build := adds.get("build_packages"):
        steps.append(_install_command(build, hashes or {}))
    steps.append(_install_command(packages, hashes or {}, " --no-build-isolation"))
    text = f"FROM {base}\nRUN {' && '.join(steps)}\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    name = f"{REGISTRY}/drafthouse-{engine}:{version}-{method}-{digest}"
    return Derived(name=name, base=base, containerfile=text, packages=packages)


def _install_command(packages: Sequence[str], hashes: Mapping[str, Sequence[str]], options: str = "") -> str:
    """The shell command that installs packages, by their hashes if all have some; ``options``: further ones of uv."""
    lines = with_hashes(packages, hashes)
    hashed = " --require-hashes" if all_have_hashes(lines) else ""
    return f"printf '%s\\n' {shlex.join(lines)} | {_UV}{options}{hashed} -r -"
