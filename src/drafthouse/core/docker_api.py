"""Docker's engine asked over its socket: no client program and no SDK needed. Standard library only, Python 3.10.

Paths and fields: Docker Engine API v1.41 (https://docs.docker.com/reference/api/engine/), which every engine
from 20.10 on answers; paths without a version take the engine's own.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote, urlencode

from .errors import DrafthouseError, Problem

if TYPE_CHECKING:
    from .documents import Json

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
        """Return the answer: data where it is JSON, bytes where it is a stream, else text.

        ``body`` is sent as JSON, or as a tar where it is bytes. Several JSON objects, a line each, are a list.
        """
        url = quote(path, safe="/:") + (f"?{urlencode(query)}" if query else "")
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
        connection = _Connection(self._path, self._timeout)
        try:
            connection.request(method, url, raw, {"Content-Type": kind} if raw else {})
            answer = connection.getresponse()
            content, said = answer.read(), answer.getheader("Content-Type") or ""
        except http.client.HTTPException as error:
            raise OSError(f"no proper answer: {error!r}") from error
        finally:
            connection.close()
        text = content.decode("utf-8", "replace")
        if answer.status >= 400:
            raise EngineError(answer.status, _message(text))
        if "stream" in said:
            return content
        if "json" not in said:
            return text
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        for line in lines:  # what goes wrong after the first byte of an answer
            if isinstance(line, dict) and "error" in line:
                raise EngineError(answer.status, str(line["error"]))
        return lines[0] if len(lines) == 1 else lines or None

    def answers(self) -> bool:
        """Tell whether the engine is there and well."""
        try:
            self.call("GET", "/_ping")
        except (OSError, EngineError):
            return False
        return True

    def info(self) -> EngineInfo:
        """Return what the engine says of itself; DrafthouseError where it does not answer."""
        info: EngineInfo = self._told("/info")
        return info

    def version(self) -> EngineVersion:
        """Return which engine it is; DrafthouseError where it does not answer."""
        version: EngineVersion = self._told("/version")
        return version

    def _told(self, path: str) -> Any:
        try:
            return dict(self.call("GET", path))
        except (OSError, EngineError, TypeError, ValueError) as error:
            raise DrafthouseError(
                Problem(
                    "docker-not-answering",
                    f"the container engine does not answer on {self._path}: {error}",
                    "an engine that answers",
                    "look with `systemctl status docker` and `journalctl -u docker -n 50`",
                )
            ) from error


def output_of(raw: bytes) -> str:
    """Return what a container without a terminal printed: frames of eight bytes of head and their content."""
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
