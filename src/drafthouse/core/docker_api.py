"""Docker asked over its socket, by whatever Python the box has: no client program and no SDK needed.

Standard library only, Python 3.10. Docker's SDK fetches, loads, builds and saves images (docs/decisions/docker.md).

Paths and fields: Docker Engine API v1.41 (https://docs.docker.com/reference/api/engine/), which every engine
from 20.10 on answers; paths without a version take the engine's own.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote, urlencode

from .errors import one_problem

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

SOCKET = "/var/run/docker.sock"


class EngineError(Exception):
    """The engine refused, in its own words. ``status`` is the HTTP status."""

    def __init__(self, status: int, words: str) -> None:
        self.status, self.words = status, words
        super().__init__(f"{status}: {words}")


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class EngineInfo(TypedDict, total=False):
    """What the engine says of itself: what is read of it."""

    ServerVersion: str
    DockerRootDir: str
    LoggingDriver: str
    LiveRestoreEnabled: bool
    Containers: int
    ContainersRunning: int
    Images: int
    Runtimes: Mapping[str, Json]
    SecurityOptions: list[str] | None
    CDISpecDirs: list[str] | None


class Component(TypedDict):
    """A part of the engine."""

    Name: str


class EngineVersion(TypedDict, total=False):
    """The engine's answer to /version: what is read of it."""

    Version: str
    Components: list[Component] | None


class DockerApi:
    """One engine. Every call raises OSError where nobody answers, and EngineError where the engine refuses."""

    def __init__(self, path: str = SOCKET, timeout_s: float = 60.0) -> None:
        self._path, self._timeout = path, timeout_s

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The answer: data where it is JSON, else text.

        ``body`` is sent as JSON, or as a tar where it is bytes. Several JSON objects, a line each, are a list.
        """
        content, kind = self._answer(method, path, body, query)
        text = content.decode("utf-8", "replace")
        if "json" not in kind:
            return text
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        for line in lines:  # what goes wrong after the first byte of an answer
            if isinstance(line, dict) and "error" in line:
                raise EngineError(HTTPStatus.OK, str(line["error"]))
        if len(lines) == 1:
            return lines[0]
        return lines or None

    def log(self, container: str, **query: str) -> str:
        """What a container without a terminal printed; ``query``: since (epoch seconds), tail (lines)."""
        path = f"/containers/{container}/logs"
        return output_of(self._answer("GET", path, None, {"stdout": "1", "stderr": "1", **query})[0])

    def execute(self, container: str, command: Sequence[str]) -> str:
        """Run a command in a container that runs, and return what it printed."""
        asked = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True}
        made = self.call("POST", f"/containers/{container}/exec", asked)["Id"]
        return output_of(self._answer("POST", f"/exec/{made}/start", {"Detach": False, "Tty": False}, {})[0])

    def _answer(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> tuple[bytes, str]:
        url = quote(path, safe="/:")
        if query:
            url += f"?{urlencode(query)}"
        raw, headers = b"", {}
        if isinstance(body, bytes):
            raw, headers = body, {"Content-Type": "application/x-tar"}
        elif body is not None:
            raw, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        connection = _Connection(self._path, self._timeout)
        try:
            connection.request(method, url, raw, headers)
            answer = connection.getresponse()
            content, kind = answer.read(), answer.getheader("Content-Type") or ""
        except http.client.HTTPException as error:
            raise OSError(f"no proper answer: {error!r}") from error
        finally:
            connection.close()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise EngineError(answer.status, _message(content.decode("utf-8", "replace")))
        return content, kind

    def answers(self) -> bool:
        """Tell whether the engine is there and well."""
        try:
            self.call("GET", "/_ping")
        except (OSError, EngineError):
            return False
        return True

    def info(self) -> EngineInfo:
        """What the engine says of itself; DrafthouseError where it does not answer."""
        info: EngineInfo = self._told("/info")
        return info

    def version(self) -> EngineVersion:
        """Which engine it is; DrafthouseError where it does not answer."""
        version: EngineVersion = self._told("/version")
        return version

    def _told(self, path: str) -> Any:
        try:
            return dict(self.call("GET", path))
        except (OSError, EngineError, TypeError, ValueError) as error:
            raise one_problem(
                "docker-not-answering",
                f"the container engine does not answer on {self._path}: {error}",
                "an engine that answers",
                "check `systemctl status docker` and `journalctl -u docker -n 50`",
            ) from error


def output_of(raw: bytes) -> str:
    """What a container without a terminal printed: frames of eight bytes of head and their content."""
    text, at = b"", 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at + 4 : at + 8], "big")
        text += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return text.decode("utf-8", "replace")


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
