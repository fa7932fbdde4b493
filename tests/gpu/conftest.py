"""The luggage as it is packed for a GPU box, unpacked in an empty folder, and the server built from it for the CPU."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.gpu import luggage
from tests.gpu.clock import Clock
from tests.gpu.llama_build import Built, build
from tests.support.programs import missing

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("luggage")
    path = folder / "gpu-luggage.tar.xz"
    size = luggage.pack(path, PYTHON, folder / "work")
    print(f"packed: {size / 2**20:.1f} MiB")
    return path


@pytest.fixture(scope="session")
def unpacked(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("box") / "luggage"
    luggage.unpack(packed, folder)
    return folder


@pytest.fixture(scope="session")
def built(unpacked: Path) -> Built:
    if without := missing("g++"):
        pytest.skip(without)  # it names the package that brings it
    # pip gets --no-index; the compilers need no network.
    began = time.monotonic()
    programs = luggage.tools(unpacked, unpacked.parent / "tools")
    found = build(unpacked / "llama.cpp", unpacked.parent / "build", None, programs, clock=Clock())
    print(f"{found.steps} steps in {found.seconds:.0f} s, {found.cpu_s:.0f} s of CPU; with CMake's own environment")
    print(f"in {time.monotonic() - began:.0f} s")
    return found
