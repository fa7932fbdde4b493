"""Pull and build images with Docker's SDK, which uses the user's registry logins and streams large layers.

Only Drafthouse's Python environment has the SDK; a machine's system Python lacks it (docs/decisions/docker.md).
"""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.docker_api import SOCKET
from ...core.errors import DrafthouseError, Problem, one_problem
from ...profiles.derived_image import LABEL

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

# Between two events: Docker sends none while it unpacks a layer of several gigabytes.
_API_TIMEOUT_S = 1800
_LAST_LINES = 15  # of a failed build's output to show
Say = Callable[[str], None]  # gets a line of output


def pull(image: str) -> None:
    """Pull an image by its tag or its digest. Raises DrafthouseError."""
    with _client(image) as api:
        for _ in _lines(api.pull(image, stream=True, decode=True)):
            pass  # the pull goes on, and errors show, only while its events are read


def build(image: str, containerfile: str, say: Say) -> None:
    """Build an image from the text of a Containerfile, without a build context; ``say`` gets each output line.

    Raises DrafthouseError with the last lines of the output.
    """
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with _client(image) as api:
        try:
            events = api.build(
                fileobj=io.BytesIO(containerfile.encode()), tag=image, rm=True, forcerm=True, decode=True,
                labels={LABEL: "true"}, use_config_proxy=True,
            )  # fmt: skip
            for line in _lines(events):
                last_lines.append(line)
                say(line)
        except OSError as error:
            raise DrafthouseError(_build_problem(image, containerfile, [*last_lines, str(error)])) from error


def _build_problem(image: str, containerfile: str, last_lines: Iterable[str]) -> Problem:
    """The problem of a failed build. The Containerfile's first line names the image that it derives from."""
    base = containerfile.split("\n", 1)[0].removeprefix("FROM ")
    found = "docker build failed; its last lines:\n" + "\n".join(last_lines)
    needed = f"an image derived from {base}: that needs uv and a C++ compiler in it, and a package index"
    do = "fix what it names, then run again; -e drafthouse_runtime=process builds it in an environment instead"
    return Problem("image-build-failed", found, needed, do, image)


@contextlib.contextmanager
def _client(where: str) -> Iterator[Any]:
    """Yield the SDK's client; its errors and Docker's become DrafthouseError. ``where`` is the image's name."""
    try:
        import docker  # noqa: PLC0415 (the box's own Python has none, and reads this file too)
    except ImportError as error:
        do = "run it with the Python of our own environment, or: pip install docker"
        raise one_problem("program-missing", f"{error}", "the package docker, Docker's SDK", do, where) from error
    try:
        with contextlib.closing(docker.APIClient(f"unix://{SOCKET}", timeout=_API_TIMEOUT_S)) as api:
            yield api
    except (docker.errors.DockerException, OSError) as error:
        do = "check `docker info` and `journalctl -u docker -n 50`; a registry that wants a login: docker login"
        raise one_problem("docker-refused", str(error), "an image that Docker can pull", do, where) from error


def _lines(events: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    """Yield Docker's progress messages. Raises OSError with the message of an error event."""
    for event in events:
        if event.get("error"):
            raise OSError(str(event["error"]))
        if line := str(event.get("stream") or event.get("status") or "").strip():
            yield line
