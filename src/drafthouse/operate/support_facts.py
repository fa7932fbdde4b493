"""Collects the box's part of a support bundle: ends of logs, server configuration, versions; all secrets redacted.

Only files that match the patterns below are read; no pattern matches a file with a key. Standard library only,
Python 3.10.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ..core.docker_api import DockerApi, EngineError
from ..core.errors import DrafthouseError
from ..core.procfs import first_environment
from ..core.redact import known_secrets, redactor
from ..host.driver.facts import output_of, read_driver
from ..profiles.container import FRONT_LABEL, GATEWAY_LABEL, LABEL, MONITORING_LABEL, PREFIX
from ..serving.containers import has_engine, list_containers
from ..serving.runtimes import ContainerRuntime
from ..weights.hub_habits import token_file

LINES = 500  # kept of each log, from its end
BYTES = 512 * 1024  # the most that are read of a file
_DOCKER_S = 30.0  # for one answer of Docker
#: Drafthouse's systemd units, as a pattern for systemctl.
UNITS = "drafthouse-*.service"
#: Labels of Drafthouse's containers: engines, gateway, monitoring, a fleet's load balancer.
LABELS = (LABEL, GATEWAY_LABEL, MONITORING_LABEL, FRONT_LABEL)
#: Logs below Drafthouse's folder on the box: engines, gateway, monitoring, fleet, watchdog, and their supervisords.
LOG_FILES = (
    "logs/*.log",
    "gateway/logs/*.log",
    "supervisor/supervisord.log",
    "gateway/supervisor/supervisord.log",
    "monitoring/logs/*.log",
    "monitoring/supervisor/supervisord.log",
    "fleet/gateway/logs/*.log",
    "fleet/gateway/supervisor/supervisord.log",
    "replica/logs/*.log",
    "watchdog/logs/*.log",
    "watchdog/supervisor/supervisord.log",
)
_LOGS = (*LOG_FILES, "served/history.jsonl", "watchdog/journal*.jsonl")
# Configuration and state, below the same folder. They are read whole.
_FILES = (
    "serve/*/*/*",
    "supervisor/supervisord.conf",
    "gateway/Caddyfile",
    "gateway/serve.sh",
    "gateway/supervisor/supervisord.conf",
    "gateway/tls/certificate.pem",
    "fleet/gateway/Caddyfile",
    "replica/order.json",
    "watchdog/order.json",
    "watchdog/state.json",
    "watchdog/serve.sh",
    "watchdog/supervisor/supervisord.conf",
    "monitoring/*.yml",
    "monitoring/dcgm.csv",
    "monitoring/programs/*/serve.sh",
    "monitoring/grafana/*/*",
    "monitoring/supervisor/supervisord.conf",
    "run/*.json",
)
_SYSTEM_FILES = ("/etc/os-release", "/etc/docker/daemon.json", "/proc/driver/nvidia/version", "/proc/meminfo")
# Files with secrets, which are read only to know what to redact: below Drafthouse's folder, and below the user's home.
_KEYS = ("secrets/*", "gateway/tls/key.pem", "fleet/gateway/tls/key.pem")
_USER_KEYS = (
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface/token",
    ".config/vastai/vast_api_key",
    ".vast_api_key",
)
# Words of the kernel's log about GPU failures, lack of memory and faulty or full disks.
_KERNEL = ("NVRM", "Xid", "Out of memory", "oom-kill", "oom_reaper", "I/O error", "No space left")


def gather(
    home: Path, engine_home: Path, root: Path = Path("/"), environ: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """By file name in the bundle, the redacted texts; empty ones are left out.

    ``home`` is Drafthouse's folder, ``engine_home`` the folder of the engine's Python environment. ``root`` and
    ``environ`` (default: this process's) are others in tests only.
    """
    redact = redactor_of(home, environ)
    return {name: redact(text) for name, text in _texts(home, engine_home, root) if text}


def redactor_of(home: Path, environ: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """A function that removes from a text all secrets that the box's environment and key files contain.

    These are the environments of the box's first process and ``environ`` (default: this process's).
    """
    secrets = known_secrets(os.environ if environ is None else environ, key_files(home))
    return redactor(secrets | known_secrets(first_environment()))


def key_files(home: Path | None = None, user: Path | None = None) -> list[Path]:
    """The files that hold a secret: keys below ``home`` (None: none), and the user's tokens for the hub and vast.ai.

    ``user`` is the user's home folder; None: that of this process.
    """
    files: list[Path] = []
    if home:
        for pattern in _KEYS:
            files += [path for path in sorted(home.glob(pattern)) if path.is_file()]
    return [*files, token_file(), *((user or Path.home()) / name for name in _USER_KEYS)]


def _texts(home: Path, engine_home: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the file name in the bundle and the text of each part, not redacted yet."""
    for path in _matching_files(home, _LOGS):
        yield f"box/{path.relative_to(home)}", tail(path)
    for path in _matching_files(home, _FILES):
        yield f"box/{path.relative_to(home)}", _read(path)
    for name in _SYSTEM_FILES:
        yield f"box/system{name}", _read(root / name.lstrip("/"))
    yield "box/versions.txt", _versions(home, engine_home)
    yield "box/nvidia-smi.txt", output_of("nvidia-smi", any_status=True)
    yield "box/kernel.txt", "\n".join((kernel_log(_KERNEL) or [])[-LINES:])
    yield from _journals()
    yield from _container_texts()


def _matching_files(home: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the regular files below ``home`` that match a pattern. Links are left out: they could lead to a key."""
    for pattern in patterns:
        for path in sorted(home.glob(pattern)):
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(home.resolve()):
                yield path


def tail(path: Path, lines: int = LINES, max_bytes: int = BYTES) -> str:
    """The last lines of a file, "" if unreadable. A first cut line is dropped: a cut secret would not be redacted."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - max_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    if size > max_bytes:
        text = text.partition("\n")[2]
    return "".join(text.splitlines(keepends=True)[-lines:])


def _read(path: Path) -> str:
    """The text of a file; "" if it cannot be read or is larger than `BYTES`, as no configuration file is."""
    try:
        if path.stat().st_size <= BYTES:
            return path.read_text("utf-8", errors="replace")
    except OSError:
        pass
    return ""


def _versions(home: Path, engine_home: Path) -> str:
    """The versions of kernel, Python, the driver's packages, and the packages of both Python environments, as lines."""
    facts = read_driver()
    lines = [f"kernel {platform.release()}", f"python {sys.version.split()[0]} ({sys.executable})"]
    lines += [
        f"package {name} {package['version']}{' held' * package['held']}" for name, package in facts["packages"].items()
    ]
    for title, folder in (("venv", home / "venv"), ("engine", engine_home)):
        folders = folder.glob("lib/python3*/site-packages/*.dist-info")
        for name in sorted(path.name.removesuffix(".dist-info") for path in folders):
            lines.append(f"{title} {name}")
    return "\n".join(lines) + "\n"


def kernel_log(words: Iterable[str]) -> list[str] | None:
    """The lines of the kernel's log that contain one of ``words``; None where the log may not be read."""
    text = output_of("dmesg")
    if not text:
        return None
    return [line for line in text.splitlines() if any(word in line for word in words)]


def _journals() -> Iterator[tuple[str, str]]:
    """Yield the journal's last lines of each of Drafthouse's units, which write no log files."""
    unit_list = output_of("systemctl", "list-unit-files", "--plain", "--no-legend", UNITS)
    for name in re.findall(r"^[ \t]*(\S+)", unit_list, re.MULTILINE):
        command = ("journalctl", "--no-pager", "--output=short-iso", f"--unit={name}", f"--lines={LINES}")
        yield f"box/systemd/{name}.log", output_of(*command)


def _container_texts() -> Iterator[tuple[str, str]]:
    """Yield Docker's version, and settings and log of each of Drafthouse's containers; nothing without an engine.

    A container that ends meanwhile is left out.
    """
    if not has_engine():
        return
    api = DockerApi(timeout_s=_DOCKER_S)
    try:
        yield "box/docker/version.txt", json.dumps(api.version(), indent=1)
        names: list[str] = []
        for label in LABELS:
            names += list_containers(api, label=label)
    except DrafthouseError as error:
        yield "box/docker/version.txt", error.problems[0].found
        return
    for name in names:
        with contextlib.suppress(OSError, EngineError):
            yield f"box/docker/{name}.json", json.dumps(api.call("GET", f"/containers/{name}/json"), indent=1)
        yield f"box/docker/{name}.log", ContainerRuntime().tail(name.removeprefix(PREFIX), LINES)
