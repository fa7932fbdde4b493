"""llama-server built from the luggage's sources: without a network, for one GPU or for the CPU.

Standard library only; the compilers are the box's. CMake and Ninja are the luggage's own, so that a box needs g++ and,
for a GPU, nvcc.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drafthouse.core.errors import one_problem
from tests.gpu.clock import Clock

#: What of llama.cpp the server is made from; other back ends, examples, tests and its web page stay out.
KEPT = (
    *("CMakeLists.txt", "LICENSE", "AUTHORS", "licenses", "cmake", "include", "src", "common", "vendor"),
    *("ggml/CMakeLists.txt", "ggml/cmake", "ggml/include", "ggml/src/CMakeLists.txt"),
    *("ggml/src/ggml-cpu", "ggml/src/ggml-cuda", "tools/mtmd", "tools/server"),
    *("tools/ui/CMakeLists.txt", "tools/ui/ui.h.in", "tools/ui/ui.cpp.in", "scripts/ui-assets.cmake"),
)
#: FlashAttention stays, though it is much of the compiler's work: everybody's server runs it, and without it the scores
#: of 8192 tokens are a buffer of which the plan of the memory knows nothing. Types of its cache: the default ones.
_CUDA: Mapping[str, str] = {
    "GGML_CUDA": "ON",
    "GGML_CUDA_FA": "ON",
    "GGML_CUDA_FA_ALL_QUANTS": "OFF",
    "GGML_CUDA_NCCL": "OFF",
}
#: Of what is kept, folders of tests and pictures.
DROPPED = ("tools/mtmd/tests", "tools/mtmd/legacy-models", "tools/server/tests", "tools/server/bench")
SUFFIXES = (".mp4", ".mp3", ".jpeg", ".png", ".md", ".sh")
#: In place of tools/CMakeLists.txt, which asks for folders that are not there.
TOOLS = """# Of llama.cpp's tools the server alone (make test-gpu).
add_subdirectory(mtmd)
add_subdirectory(ui)
add_subdirectory(server)
# Many small files with the same headers, compiled a dozen at once, as llama.cpp compiles its own models.
set_target_properties(mtmd llama-common server-context PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
# These stand no others beside them.
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/common/json.cpp
  ${PROJECT_SOURCE_DIR}/tools/mtmd/mtmd-helper.cpp
  ${PROJECT_SOURCE_DIR}/tools/mtmd/mtmd-helper-gen.cpp
  TARGET_DIRECTORY llama-common mtmd
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
"""
_SETTINGS: Mapping[str, str] = {
    "CMAKE_BUILD_TYPE": "Release",
    # Not -O3: what is measured runs on the GPU, or is written with intrinsics.
    "CMAKE_C_FLAGS_RELEASE": "-O2 -DNDEBUG",
    "CMAKE_CXX_FLAGS_RELEASE": "-O2 -DNDEBUG",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_ALL_WARNINGS": "OFF",
    "GGML_CCACHE": "OFF",
    # Built where it runs.
    "GGML_NATIVE": "ON",
    "GGML_LLAMAFILE": "OFF",
    "LLAMA_ALL_WARNINGS": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_SUBPROCESS": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "MTMD_VIDEO": "OFF",
}
_LAST_LINES = 15
#: A line of Ninja: [12/105] Building ...
_STEP = re.compile(rb"^\[\d+/(\d+)\]", re.MULTILINE)
#: One step of the build may take so long: all of them, on a machine that is busy with other work.
_MOST_S = 3600.0


@dataclass(frozen=True)
class Built:
    """A server: its program, the seconds that the build took (by the clock, and of CPU), its steps and settings."""

    program: Path
    seconds: float
    cpu_s: float
    steps: int
    settings: Mapping[str, str]


def is_kept(name: str) -> bool:
    """Whether a file goes into the luggage; ``name`` is relative to llama.cpp's root, with slashes."""
    if name.startswith(tuple(f"{folder}/" for folder in DROPPED)) or name.endswith(SUFFIXES):
        return False
    head, _, rest = name.removeprefix("ggml/src/").partition("/")
    if name.startswith("ggml/src/") and not rest and head.endswith((".c", ".cpp", ".h", ".in")):
        return True
    return any(name == kept or name.startswith(f"{kept}/") for kept in KEPT)


def settings(capability: str | None) -> dict[str, str]:
    """CMake's settings: ``capability`` as nvidia-smi tells it (``9.0``), None for the CPU."""
    if capability is None:
        return {**_SETTINGS, "GGML_CUDA": "OFF"}
    return {**_SETTINGS, **_CUDA, "CMAKE_CUDA_ARCHITECTURES": f"{capability.replace('.', '')}-real"}


def build(source: Path, folder: Path, capability: str | None, programs: Path, nvcc: str = "", *, clock: Clock) -> Built:
    """Build llama-server from ``source`` in ``folder``; ``programs`` holds cmake and ninja. Raises DrafthouseError.

    A second call goes on where a first was ended: ``seconds``, ``cpu_s`` and ``steps`` are of this call. One compiler a
    core.
    """
    chosen = settings(capability)
    began, before = time.monotonic(), _children_s()
    words = [f"-D{name}={value}" for name, value in sorted({**chosen, **_of_box(nvcc)}.items())]
    words += [f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}"]
    folder.mkdir(parents=True, exist_ok=True)
    _run([str(programs / "cmake"), "-G", "Ninja", "-S", str(source), "-B", str(folder), *words], folder, clock)
    cores = str(len(os.sched_getaffinity(0)))
    # What a build that was ended left out is all that is built now.
    done = (folder / "build.log").stat().st_size
    _run([str(programs / "ninja"), "-C", str(folder), "-j", cores, "llama-server"], folder, clock)
    with (folder / "build.log").open("rb") as log:
        log.seek(done)
        steps = max((int(number) for number in _STEP.findall(log.read())), default=0)
    program = folder / "bin" / "llama-server"
    return Built(program, time.monotonic() - began, _children_s() - before, steps, chosen)


def _of_box(nvcc: str) -> dict[str, str]:
    """The settings with paths of this box, which stay out of the evidence."""
    if not nvcc:
        return {}
    # CMake leaves out of the program where nvcc itself looks for libraries, and not every box has told ld.so of it.
    home = Path(nvcc).resolve().parent.parent
    return {"CMAKE_CUDA_COMPILER": nvcc, "CMAKE_EXE_LINKER_FLAGS": f"-Wl,-rpath,{home / 'lib64'}"}


def _children_s() -> float:
    """Return the CPU seconds of all programs that were run and have ended."""
    used = os.times()
    return used.children_user + used.children_system


def _run(command: Sequence[str], folder: Path, clock: Clock) -> None:
    """Run a part of the build; what it wrote is kept in ``folder``/build.log."""
    log = folder / "build.log"
    if clock.run(command, _MOST_S, log=log):
        lines = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
        raise one_problem(
            "program-failed", "\n".join(lines), f"{Path(command[0]).name} that ends well", f"read {log}", str(folder)
        )
