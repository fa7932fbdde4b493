"""A client of the Docker Engine API over its Unix socket, without the `docker` program or Docker's Python SDK.

Standard library only, Python 3.10: any box can run it. Docker's SDK pulls, loads, builds and saves images elsewhere
(docs/decisions/docker.md). "The engine" is the Docker daemon here. Paths and fields are those of API v1.41
(https://docs.docker.com/reference/api/engine/), which Docker 20.10 and later serve; a path without a version
takes the daemon's newest one.
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
    """An error response of the engine: the HTTP status, and the engine's message in ``words``."""

    def __init__(self, status: int, words: str) -> None:
        self.status = status
        self.words = words
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
    """The response to /info: the fields that are used, under Docker's names."""

    ServerVersion: str
    DockerRootDir: str  # folder of images and containers
    LoggingDriver: str  # of containers that name none
    LiveRestoreEnabled: bool  # containers run on while the engine restarts
    Containers: int  # number, stopped ones included
    ContainersRunning: int  # number
    Images: int  # number
    Runtimes: Mapping[str, Json]  # by name
    SecurityOptions: list[str] | None  # such as name=rootless
    CDISpecDirs: list[str] | None  # folders of CDI files, which describe devices


class Component(TypedDict):
    """A component in the response to /version."""

    Name: str


class EngineVersion(TypedDict, total=False):
    """The response to /version: the fields that are used."""

    Version: str
    Components: list[Component] | None


class DockerApi:
    """One engine. A method raises OSError where the engine does not answer, and EngineError for an error response."""

    def __init__(self, path: str = SOCKET, timeout_s: float = 60.0) -> None:
        self._path = path
        self._timeout_s = timeout_s  # of each operation of the socket

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The response's data if it is JSON (a list for several JSON lines, None for an empty body), else its text.

        ``body`` is sent as JSON, or as a tar archive if it is bytes; None sends none.
        """
        content, content_type = self._request(method, path, body, query)
        text = content.decode("utf-8", "replace")
        if "json" not in content_type:
            return text
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        for line in lines:  # an error after the first line comes in a line, as the status has been sent
            if isinstance(line, dict) and "error" in line:
                raise EngineError(HTTPStatus.OK, str(line["error"]))
        if len(lines) == 1:
            return lines[0]
        return lines or None

    def log(self, container: str, **query: str) -> str:
        """The output of a container without a TTY; ``query``: ``since`` (unix seconds), ``tail`` (lines)."""
        path = f"/containers/{container}/logs"
        output, _ = self._request("GET", path, body=None, query={"stdout": "1", "stderr": "1", **query})
        return output_of(output)

    def execute(self, container: str, command: Sequence[str]) -> str:
        """Run a command in a running container, and return its output, errors included, whatever its exit status."""
        options = {"Cmd": list(command), "AttachStdout": True, "AttachStderr": True}
        exec_id = self.call("POST", f"/containers/{container}/exec", options)["Id"]
        start = {"Detach": False, "Tty": False}
        output, _ = self._request("POST", f"/exec/{exec_id}/start", body=start, query={})
        return output_of(output)

    def _request(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> tuple[bytes, str]:
        """The content of the response and its type. Raises OSError and EngineError."""
        url = quote(path, safe="/:")
        if query:
            url += f"?{urlencode(query)}"
        raw = b""
        headers = {}
        if isinstance(body, bytes):
            raw = body
            headers["Content-Type"] = "application/x-tar"
        elif body is not None:
            raw = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = _Connection(self._path, self._timeout_s)
        try:
            connection.request(method, url, raw, headers)
            response = connection.getresponse()
            content = response.read()
            content_type = response.getheader("Content-Type") or ""
        except http.client.HTTPException as error:
            raise OSError(f"no proper answer: {error!r}") from error
        finally:
            connection.close()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise EngineError(response.status, _message(content.decode("utf-8", "replace")))
        return content, content_type

    def answers(self) -> bool:
        """True if the engine answers a ping without an error."""
        try:
            self.call("GET", "/_ping")
        except (OSError, EngineError):
            return False
        return True

    def info(self) -> EngineInfo:
        """The engine's settings and state. Raises DrafthouseError where it does not answer."""
        info: EngineInfo = self._get("/info")
        return info

    def version(self) -> EngineVersion:
        """The engine's version. Raises DrafthouseError where it does not answer."""
        version: EngineVersion = self._get("/version")
        return version

    def _get(self, path: str) -> Any:
        """The object at ``path``. Raises DrafthouseError for any failure, also if the engine does not answer."""
        try:
            return dict(self.call("GET", path))
        except (OSError, EngineError, TypeError, ValueError) as error:
            found = f"the container engine does not answer on {self._path}: {error}"
            needed = "an engine that answers"
            do = "check `systemctl status docker` and `journalctl -u docker -n 50`"
            raise one_problem("docker-not-answering", found, needed, do) from error


def output_of(raw: bytes) -> str:
    """The text in Docker's multiplexed stream: frames of an 8-byte header (the length in its last 4) and content."""
    content = b""
    at = 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at + 4 : at + 8], "big")
        content += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return content.decode("utf-8", "replace")


def _message(text: str) -> str:
    """The ``message`` of the engine's error response, or the whole text where it is no such JSON."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
