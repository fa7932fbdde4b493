"""An image that holds what a method adds to the engine: derived from the pinned one by a Containerfile of two lines.

The name is made of the Containerfile, so that one that is there needs no second look, and a change is another image.
It is built on the box (`host.docker.derived_image`).
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

# No registry is asked for an image of this name: one that is missing is an error, and not somebody else's.
REGISTRY = "localhost"
LABEL = "drafthouse.derived"
_UV = "uv pip install --system --no-cache --no-deps"


@dataclass(frozen=True)
class Derived:
    """An image that is built: its name, what it is derived from, and how."""

    name: str
    base: str
    containerfile: str
    packages: tuple[str, ...]

    def as_dict(self) -> DerivedImage:
        """Return it as plain data."""
        return {
            "name": self.name,
            "base": self.base,
            "containerfile": self.containerfile,
            "packages": list(self.packages),
        }


def derived_from(
    base: str,
    engine: str,
    version: str,
    method: str,
    adds: MethodPackages,
    hashes: Mapping[str, Sequence[str]] | None = None,
) -> Derived | None:
    """The image for a ``method`` that adds to ``base``; None for one that adds nothing.

    ``adds`` has the method's ``source_packages`` and ``build_packages``: built as in an environment, without
    isolation, which would fetch another torch. ``hashes``: what is known of their versions.
    """
    packages = tuple(adds.get("source_packages") or ())
    if not packages:
        return None
    steps = []
    if build := adds.get("build_packages"):
        steps.append(_step(build, hashes or {}))
    steps.append(_step(packages, hashes or {}, " --no-build-isolation"))
    text = f"FROM {base}\nRUN {' && '.join(steps)}\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Derived(f"{REGISTRY}/drafthouse-{engine}:{version}-{method}-{digest}", base, text, packages)


def _step(packages: Sequence[str], hashes: Mapping[str, Sequence[str]], more: str = "") -> str:
    lines = with_hashes(packages, hashes)
    hashed = " --require-hashes" if all_have_hashes(lines) else ""
    return f"printf '%s\\n' {shlex.join(lines)} | {_UV}{more}{hashed} -r -"
