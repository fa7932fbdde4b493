"""What a rented container's first process was given and SSH sessions do not see: address, ports, CUDA's folders.

A provider gives its variables to PID 1; sshd starts sessions with an environment of their own (docs.vast.ai,
docker-environment). Only what is named here is taken out. Keys and tokens stand in the same place, and stay there.
Standard library only: it runs on a bare box.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypedDict

# What an engine needs to find its GPU and CUDA as the image's own start would have.
_FOR_ENGINES = re.compile(
    r"^(CUDA_(HOME|PATH|VERSION|VISIBLE_DEVICES|DEVICE_ORDER|MODULE_LOADING|FORCE_PTX_JIT|DISABLE_PTX_JIT)"
    r"|NV_CUDA_[A-Z_]+_VERSION|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)"
    r"|NCCL_[A-Z0-9_]+|LD_LIBRARY_PATH|LIBRARY_PATH|TORCH_CUDA_ARCH_LIST|VLLM_ENABLE_CUDA_COMPATIBILITY)$"
)
_DRIVER = "/usr/local/nvidia"  # where NVIDIA's container runtime puts the driver's libraries
# What tells how the box is reached, and how long it lives.
_OF_THE_BOX = re.compile(r"^(PUBLIC_IPADDR|RUNPOD_PUBLIC_IP|(VAST|RUNPOD)_TCP_PORT_\d+|DRAFTHOUSE_DEADLINE)$")
# Whatever the patterns above say: what is called like this is never taken.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def for_engines(environ: Mapping[str, str], *, own: bool = False) -> dict[str, str]:
    """What an engine is started with beside its own settings, sorted by name.

    ``own``: an engine in an environment of ours brings CUDA's libraries along. The image's other ones must not come
    before them, so that only the driver's folder stays of where libraries are looked for.
    """
    taken = _taken(environ, _FOR_ENGINES)
    if not own:
        return taken
    for name in ("LD_LIBRARY_PATH", "LIBRARY_PATH"):
        folders = [folder for folder in taken.pop(name, "").split(":") if folder.startswith(_DRIVER)]
        if folders:
            taken[name] = ":".join(folders)
    return taken


def search_path(environ: Mapping[str, str]) -> list[str]:
    """The folders in which the image's own start finds its programs, the first ones first."""
    folders = []
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            folders.append(f"{environ[name]}/bin")
    folders += environ.get("PATH", "").split(":")
    return [folder for folder in dict.fromkeys(folders) if folder.startswith("/")]


class FirstProcess(TypedDict):
    """What may be told of the first process's environment; the deadline is in unix seconds."""

    address: str | None
    ports: dict[str, int]
    deadline: int | None
    search_path: list[str]


def facts(environ: Mapping[str, str]) -> FirstProcess:
    """What may be told of the first process's environment: no secret is in it."""
    known = _taken(environ, _OF_THE_BOX)
    return {
        "address": known.get("PUBLIC_IPADDR") or known.get("RUNPOD_PUBLIC_IP"),
        "ports": _ports(known),
        # Given by us when it was rented: unix seconds.
        "deadline": int(known["DRAFTHOUSE_DEADLINE"]) if known.get("DRAFTHOUSE_DEADLINE", "").isdigit() else None,
        "search_path": search_path(environ),
    }


def _ports(known: Mapping[str, str]) -> dict[str, int]:
    """The outer port of each TCP port of the container that is mapped."""
    found = {}
    for name, value in known.items():
        match = re.fullmatch(r"(?:VAST|RUNPOD)_TCP_PORT_(\d+)", name)
        if match and value.isdigit():
            found[match[1]] = int(value)
    return found


def _taken(environ: Mapping[str, str], pattern: re.Pattern[str]) -> dict[str, str]:
    taken = {}
    for name, value in sorted(environ.items()):
        if pattern.match(name) and not _SECRET.search(name) and "\n" not in value:
            taken[name] = value
    return taken
