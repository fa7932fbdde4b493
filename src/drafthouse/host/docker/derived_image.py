"""Build, list and remove derived images on the box, by the docker program. Standard library only, Python 3.10."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Callable, Sequence

from ...core.errors import DrafthouseError, Problem
from ...profiles.derived_image import LABEL, REGISTRY

_LAST_LINES = 15

Say = Callable[[str], None]


def is_there(image: str) -> bool:
    """Tell whether the box has an image."""
    return _docker("image", "inspect", image).returncode == 0


def build(image: str, containerfile: str, say: Say) -> None:
    """Build an image out of the text of a Containerfile, without a context.

    Raises DrafthouseError with the last lines.
    """
    # Not quiet: of both builders of Docker's, this is where the reason of a failure stands.
    words = ["docker", "build", "--force-rm", "--label", f"{LABEL}=true", "--tag", image, "-"]
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        raise DrafthouseError(
            Problem("program-missing", f"docker: {error.strerror or error}", "the docker program", "install it", image)
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
        raise DrafthouseError(_not_built(image, containerfile, list(last)))


def _not_built(image: str, containerfile: str, last: Sequence[str]) -> Problem:
    base = containerfile.split("\n", 1)[0].removeprefix("FROM ")
    return Problem(
        "image-build-failed",
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
