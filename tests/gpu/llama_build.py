"""llama-server built from the luggage's sources: without a network, for one GPU or for the CPU.

Standard library only; the compilers are the box's. CMake and Ninja are the luggage's own, so that a box needs g++ and,
for a GPU, nvcc.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drafthouse.core.errors import one_problem

#: What of llama.cpp the server is made from; other back ends, examples, tests and its web page stay out.
KEPT = (
    *("CMakeLists.txt", "LICENSE", "AUTHORS", "licenses", "cmake", "include", "src", "common", "vendor"),
    *("ggml/CMakeLists.txt", "ggml/cmake", "ggml/include", "ggml/src/CMakeLists.txt"),
    *("ggml/src/ggml-cpu", "ggml/src/ggml-cuda", "tools/mtmd", "tools/server"),
    *("tools/ui/CMakeLists.txt", "scripts/ui-assets.cmake"),
)
#: Of what is kept, folders of tests and pictures.
DROPPED = ("tools/mtmd/tests", "tools/mtmd/legacy-models", "tools/server/tests", "tools/server/bench")
SUFFIXES = (".mp4", ".mp3", ".jpeg", ".png", ".md", ".sh")
#: In place of tools/CMakeLists.txt, which asks for folders that are not there.
TOOLS = """# Of llama.cpp's tools the server alone (make test-gpu).
add_subdirectory(mtmd)
add_subdirectory(ui)
add_subdirectory(server)
"""
_SETTINGS: Mapping[str, str] = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_CCACHE": "OFF",
    # Built where it runs.
    "GGML_NATIVE": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "MTMD_VIDEO": "OFF",
}
_LAST_LINES = 15


@dataclass(frozen=True)
class Built:
    """A server: its program, how long the build took, and with what settings of CMake."""

    program: Path
    seconds: float
    settings: Mapping[str, str]


def is_kept(name: str) -> bool:
    """Return whether a file goes into the luggage; ``name`` is relative to llama.cpp's root, with slashes."""
    if name.startswith(tuple(f"{folder}/" for folder in DROPPED)) or name.endswith(SUFFIXES):
        return False
    head, _, rest = name.removeprefix("ggml/src/").partition("/")
    if name.startswith("ggml/src/") and not rest and head.endswith((".c", ".cpp", ".h", ".in")):
        return True
    return any(name == kept or name.startswith(f"{kept}/") for kept in KEPT)


def settings(capability: str | None) -> dict[str, str]:
    """Return CMake's settings: ``capability`` as nvidia-smi tells it (``9.0``), None for the CPU."""
    if capability is None:
        return {**_SETTINGS, "GGML_CUDA": "OFF"}
    return {**_SETTINGS, "GGML_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": f"{capability.replace('.', '')}-real"}


def build(
    source: Path, folder: Path, capability: str | None, programs: Path, jobs: int | None = None, nvcc: str = ""
) -> Built:
    """Build llama-server from ``source`` in ``folder``; ``programs`` holds cmake and ninja. Raises DrafthouseError.

    A second call goes on where a first was ended. ``jobs``: how many compilers at once, by default one a core.
    """
    chosen = settings(capability)
    if nvcc:
        chosen["CMAKE_CUDA_COMPILER"] = nvcc
    began = time.monotonic()
    words = [f"-D{name}={value}" for name, value in sorted(chosen.items())]
    ninja = [f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}"]
    _run([str(programs / "cmake"), "-G", "Ninja", "-S", str(source), "-B", str(folder), *words, *ninja], folder)
    at_once = str(jobs or len(os.sched_getaffinity(0)))
    _run([str(programs / "ninja"), "-C", str(folder), "-j", at_once, "llama-server"], folder)
    return Built(folder / "bin" / "llama-server", time.monotonic() - began, chosen)


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a step of the build; what it wrote is kept in ``folder``/build.log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    with log.open("a") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        lines = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        raise one_problem(
            "program-failed", "\n".join(lines), f"{Path(command[0]).name} that ends well", f"read {log}", str(folder)
        )
