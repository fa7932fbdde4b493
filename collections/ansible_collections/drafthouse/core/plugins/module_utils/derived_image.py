"""An image that holds what a method adds to the engine: derived from the pinned one by a Containerfile of two lines.

The name is made of the Containerfile, so that one that is there needs no second look, and a change is another image.
Standard library only, Python 3.10: it is built on the box, by the docker program.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .problems import HouseError, Problem
from .requirement_lines import all_have_hashes, with_hashes

# No registry is asked for an image of this name: one that is missing is an error, and not somebody else's.
REGISTRY = "localhost"
LABEL = "drafthouse.derived"
_UV = "uv pip install --system --no-cache --no-deps"
_LAST_LINES = 15

Say = Callable[[str], None]


@dataclass(frozen=True)
class Derived:
    """An image that is built: its name, what it is derived from, and how."""

    name: str
    base: str
    containerfile: str
    packages: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
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
    install: Mapping[str, Any],
    hashes: Mapping[str, Sequence[str]] | None = None,
) -> Derived | None:
    """Return the image for a ``method`` that adds to ``base``; None for one that adds nothing.

    ``install`` has the method's ``source_packages`` and ``build_packages``: built as in an environment, without
    isolation, which would fetch another torch. ``hashes``: what is known of their versions.
    """
    packages = tuple(install.get("source_packages") or ())
    if not packages:
        return None
    steps = []
    if build := install.get("build_packages"):
        steps.append(_step(build, hashes or {}))
    steps.append(_step(packages, hashes or {}, " --no-build-isolation"))
    text = f"FROM {base}\nRUN {' && '.join(steps)}\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Derived(f"{REGISTRY}/drafthouse-{engine}:{version}-{method}-{digest}", base, text, packages)


def _step(packages: Sequence[str], hashes: Mapping[str, Sequence[str]], more: str = "") -> str:
    lines = with_hashes(packages, hashes)
    hashed = " --require-hashes" if all_have_hashes(lines) else ""
    return f"printf '%s\\n' {shlex.join(lines)} | {_UV}{more}{hashed} -r -"


def is_there(image: str) -> bool:
    """Tell whether the box has an image."""
    return _docker("image", "inspect", image).returncode == 0


def build(image: str, containerfile: str, say: Say) -> None:
    """Build an image out of the text of a Containerfile, without a context. Raises HouseError with the last lines."""
    # Not quiet: of both builders of Docker's, this is where the reason of a failure stands.
    words = ["docker", "build", "--force-rm", "--label", f"{LABEL}=true", "--tag", image, "-"]
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise HouseError(
            Problem(f"docker: {error.strerror or error}", "the docker program", "install it", image)
        ) from error
    assert child.stdin is not None and child.stdout is not None
    last: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        child.stdin.write(containerfile)
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has ended, and says why
    for line in child.stdout:
        if line.strip():
            last.append(line.rstrip())
            say(line.strip())
    if child.wait():
        raise HouseError(_not_built(image, containerfile, list(last)))


def _not_built(image: str, containerfile: str, last: Sequence[str]) -> Problem:
    base = containerfile.split("\n", 1)[0].removeprefix("FROM ")
    return Problem(
        "docker build ended with an error; its last lines:\n" + "\n".join(last),
        f"an image derived from {base}: that needs its uv, its C++ compiler, and an index of packages",
        "mend what it names, then run again; -e drafthouse_runtime=process builds it in an environment instead",
        image,
    )


def listed() -> list[str]:
    """Return the names of the images that were derived here."""
    rows = _docker("image", "ls", "--filter", f"label={LABEL}", "--format", "{{.Repository}}:{{.Tag}}").stdout
    return sorted({name for name in rows.splitlines() if name.startswith(f"{REGISTRY}/")})


def remove_all() -> tuple[list[str], list[str]]:
    """Remove the images that were derived here; return the names of those removed, and of those still in use."""
    names = listed()
    removed = [name for name in names if _docker("image", "rm", name).returncode == 0]
    return removed, [name for name in names if name not in removed]


def _docker(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    except OSError as error:  # there is none, and so no image
        return subprocess.CompletedProcess(words, 127, "", str(error))
