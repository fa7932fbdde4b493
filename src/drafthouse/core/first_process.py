"""Environment variables of a rented container's first process: its address, its ports, and CUDA's folders.

A provider passes them to PID 1 only; an SSH session gets another environment (docs.vast.ai, docker-environment). PID 1
also has keys and tokens, so only the variables listed here are taken. Standard library only, because it runs on a box
before anything is installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypedDict

# Variables that an engine needs to find its GPU and CUDA, as if the image's entry point had started it.
_FOR_ENGINES = re.compile(
    r"^(CUDA_(HOME|PATH|VERSION|VISIBLE_DEVICES|DEVICE_ORDER|MODULE_LOADING|FORCE_PTX_JIT|DISABLE_PTX_JIT)"
    r"|NV_CUDA_[A-Z_]+_VERSION|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_CUDA)"
    r"|NCCL_[A-Z0-9_]+|LD_LIBRARY_PATH|LIBRARY_PATH|TORCH_CUDA_ARCH_LIST|VLLM_ENABLE_CUDA_COMPATIBILITY)$"
)
_DRIVER = "/usr/local/nvidia"  # where NVIDIA's container runtime puts the driver's libraries
# Variables with the box's public address and ports (of vast.ai and RunPod), and with its deadline (Drafthouse's own).
_OF_THE_BOX = re.compile(r"^(PUBLIC_IPADDR|RUNPOD_PUBLIC_IP|(VAST|RUNPOD)_TCP_PORT_\d+|DRAFTHOUSE_DEADLINE)$")
# A variable whose name matches this is never taken, even if a pattern above matches it.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def for_engines(environ: Mapping[str, str], *, brings_cuda: bool = False) -> dict[str, str]:
    """The variables of ``environ`` with which an engine is started, besides its own settings; sorted by name.

    ``brings_cuda``: the engine's Python environment has CUDA's libraries. The image's CUDA libraries must not be found
    first, so only the driver's folder is kept in the library paths.
    """
    variables = _matching(environ, _FOR_ENGINES)
    if not brings_cuda:
        return variables
    for name in ("LD_LIBRARY_PATH", "LIBRARY_PATH"):
        folders = [folder for folder in variables.pop(name, "").split(":") if folder.startswith(_DRIVER)]
        if folders:
            variables[name] = ":".join(folders)
    return variables


def search_path(environ: Mapping[str, str]) -> list[str]:
    """The folders in which the image's entry point would look for programs, in order of search.

    An active environment's come first, then those of PATH. Relative folders are left out: they mean others elsewhere.
    """
    folders = []
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            folders.append(f"{environ[name]}/bin")
    folders += environ.get("PATH", "").split(":")
    return [folder for folder in dict.fromkeys(folders) if folder.startswith("/")]


class FirstProcess(TypedDict):
    """Facts about the first process's environment; None: no such variable."""

    address: str | None  # the public IP address
    ports: dict[str, int]  # public port by port in the container, as text; empty: none is mapped
    deadline: int | None  # unix seconds at which the rental ends
    search_path: list[str]  # folders of programs


def facts(environ: Mapping[str, str]) -> FirstProcess:
    """Facts from the environment of a first process; none of them is a secret."""
    variables = _matching(environ, _OF_THE_BOX)
    deadline = variables.get("DRAFTHOUSE_DEADLINE", "")  # `drafthouse rent` sets it, in unix seconds
    return {
        "address": variables.get("PUBLIC_IPADDR") or variables.get("RUNPOD_PUBLIC_IP"),
        "ports": _ports(variables),
        "deadline": int(deadline) if deadline.isdigit() else None,
        "search_path": search_path(environ),
    }


def _ports(variables: Mapping[str, str]) -> dict[str, int]:
    """The mapped TCP ports: port in the container (as text) to public port."""
    ports = {}
    for name, value in variables.items():
        match = re.fullmatch(r"(?:VAST|RUNPOD)_TCP_PORT_(\d+)", name)
        if match and value.isdigit():
            ports[match[1]] = int(value)
    return ports


def _matching(environ: Mapping[str, str], pattern: re.Pattern[str]) -> dict[str, str]:
    """The variables whose names match ``pattern``, sorted by name, without those that could hold a secret."""
    variables = {}
    for name, value in sorted(environ.items()):
        # The variables may go into supervisord's configuration, which cannot express a line break.
        if pattern.match(name) and not _SECRET.search(name) and "\n" not in value:
            variables[name] = value
    return variables
