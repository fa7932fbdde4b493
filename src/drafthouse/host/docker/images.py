"""Images fetched and built by Docker's SDK, which knows the logins of registries and streams gigabytes.

In our own environment, on a box or here; a box's own Python has no SDK (docs/decisions/docker.md).
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

# A layer of some gigabytes is unpacked without a word.
_SILENT_S = 1800
_LAST_LINES = 15

Say = Callable[[str], None]


def pull(image: str) -> None:
    """Fetch an image, by its tag or its digest. Raises DrafthouseError."""
    with _client(image) as api:
        for _ in _lines(api.pull(image, stream=True, decode=True)):
            pass


def build(image: str, containerfile: str, say: Say) -> None:
    """Build an image out of the text of a Containerfile, without a context.

    Raises DrafthouseError with the last lines.
    """
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with _client(image) as api:
        try:
            events = api.build(
                fileobj=io.BytesIO(containerfile.encode()), tag=image, rm=True, forcerm=True, decode=True,
                labels={LABEL: "true"}, use_config_proxy=True,
            )  # fmt: skip
            for line in _lines(events):
                last.append(line)
                say(line)
        except OSError as error:
            raise DrafthouseError(_not_built(image, containerfile, [*last, str(error)])) from error


def _not_built(image: str, containerfile: str, last: Iterable[str]) -> Problem:
    base = containerfile.split("\n", 1)[0].removeprefix("FROM ")
    return Problem(
        "image-build-failed",
        "docker build failed; its last lines:\n" + "\n".join(last),
        f"an image derived from {base}: that needs uv and a C++ compiler in it, and a package index",
        "fix what it names, then run again; -e drafthouse_runtime=process builds it in an environment instead",
        image,
    )


@contextlib.contextmanager
def _client(where: str) -> Iterator[Any]:
    """Yield the SDK's client; what it and Docker refuse is a DrafthouseError."""
    try:
        import docker  # noqa: PLC0415 (the box's own Python has none, and reads this file too)
    except ImportError as error:
        do = "run it with the Python of our own environment, or: pip install docker"
        raise one_problem("program-missing", f"{error}", "the package docker, Docker's SDK", do, where) from error
    try:
        with contextlib.closing(docker.APIClient(f"unix://{SOCKET}", timeout=_SILENT_S)) as api:
            yield api
    except (docker.errors.DockerException, OSError) as error:
        do = "check `docker info` and `journalctl -u docker -n 50`; a registry that wants a login: docker login"
        raise one_problem("docker-refused", str(error), "an image that Docker can pull", do, where) from error


def _lines(events: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    """Yield what Docker says on the way. Raises OSError with its words where it ends with an error."""
    for event in events:
        if event.get("error"):
            raise OSError(str(event["error"]))
        if line := str(event.get("stream") or event.get("status") or "").strip():
            yield line
