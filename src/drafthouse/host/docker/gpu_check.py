"""Prove that the container engine works: run a test container, and with a GPU start CUDA in it.

No image is pulled. The test image is built from the machine's shell, its C library and, for CUDA, its Python
(`cuda_start`). So it fits the machine's kernel and processor. NVIDIA's toolkit must add the driver and `nvidia-smi`
to the container, and this is what the check proves. The image and the container are removed afterwards.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.docker_api import DockerApi, EngineError
from ...core.errors import DrafthouseError, Problem
from ...core.messages import known_message
from ..nvidia_smi import gpu_uuids
from .cuda_start import Interpreter, failed_start, interpreter

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

IMAGE = "drafthouse-check"
_GREETING = "a container runs"
_USR_LINKS = ("bin", "lib", "lib32", "lib64", "sbin")
# nvidia-smi opens these libraries by name. They lie beside the C library.
_NVIDIA_SMI_LIBRARIES = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
# The toolkit puts the driver's libraries into the first folder on Debian and Ubuntu, else into the second.
_DRIVER_FOLDERS = f"/usr/lib/{os.uname().machine}-linux-gnu:/usr/lib64"


@dataclass(frozen=True)
class Proof:
    """Result of `prove`."""

    output: str  # of the container
    gpus: int  # number of GPUs in it
    seconds: float  # duration of the check


def prove(gpu: bool, timeout_s: float = 60.0, devices: Sequence[str] = ()) -> Proof:
    """Run the test container. Raises DrafthouseError if it fails; with ``gpu`` also if CUDA does not start in it.

    ``timeout_s`` is for each answer of the engine. ``devices`` are the indices or UUIDs of the GPUs to give to the
    container; empty means all.
    """
    started = time.monotonic()
    api = DockerApi(timeout_s=timeout_s)
    tag = str(os.getpid())  # so that checks at the same time do not share an image
    try:
        python = interpreter() if gpu else None
        requests = _device_requests(devices) if gpu else []
        api.call("POST", "/images/create", root_archive(python), fromSrc="-", repo=IMAGE, tag=tag)
        try:
            status, output = _run_container(api, f"{IMAGE}:{tag}", _command(gpu, python), requests)
        finally:
            api.call("DELETE", f"/images/{IMAGE}:{tag}", force="true")
    except (OSError, EngineError) as error:
        raise DrafthouseError(_check_problem(str(error), gpu)) from error
    uuids = gpu_uuids(output)
    works = status == 0 and _GREETING in output
    if gpu:
        # If Python itself fails in the container, cuInit is not called. Then the list of GPUs suffices as proof.
        works = bool(uuids) and not failed_start(output)
    if not works:
        raise DrafthouseError(_check_problem(f"status {status}: {output.strip() or '(it printed nothing)'}", gpu))
    return Proof(output.strip(), len(uuids), round(time.monotonic() - started, 1))


def _device_requests(devices: Sequence[str]) -> list[Json]:
    """The DeviceRequests of `--gpus all` or `--gpus device=0,1`; the capability `compute` adds CUDA's library."""
    selection: dict[str, Json] = {"DeviceIDs": list(devices)} if devices else {"Count": -1}
    return [{**selection, "Capabilities": [["gpu", "utility", "compute"]]}]


def _command(gpu: bool, python: Interpreter | None) -> list[str]:
    """The container's command: print `_GREETING`, or list the GPUs and, with a ``python``, start CUDA."""
    if not gpu:
        return ["/bin/sh", "-c", f"echo {_GREETING}"]
    return python.command if python else ["nvidia-smi", "-L"]


def _run_container(api: DockerApi, image: str, command: Sequence[str], requests: Sequence[Json]) -> tuple[int, str]:
    """Run a container of the image and remove it; return its exit status and its output."""
    container = api.call(
        "POST",
        "/containers/create",
        {
            "Image": image,
            "Cmd": list(command),
            "Env": ["PATH=/usr/bin:/usr/local/nvidia/bin", f"LD_LIBRARY_PATH={_DRIVER_FOLDERS}"],
            "HostConfig": {"NetworkMode": "none", "DeviceRequests": list(requests)},
        },
    )["Id"]
    try:
        api.call("POST", f"/containers/{container}/start")
        result = api.call("POST", f"/containers/{container}/wait")
        return int(result["StatusCode"]), api.log(container)
    finally:
        api.call("DELETE", f"/containers/{container}", force="true")


def root_archive(python: Interpreter | None) -> bytes:
    """A root file system as a tar archive: a shell, the C library with its loader, and ``python`` if given."""
    shell = os.path.realpath(shutil.which("sh") or "/bin/sh")
    libraries = linked(_ldd(shell))
    if python:
        for program in python.binaries:
            libraries += linked(_ldd(program))
        libraries += [python.program, *python.modules]
    libraries += _nvidia_smi_libraries(libraries)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for folder in ("etc", "proc", "sys", "dev", "tmp", "run", "var", "usr"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            tar.addfile(entry)
        for name in _USR_LINKS:
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.SYMTYPE
            entry.linkname = f"usr/{name}"
            tar.addfile(entry)
        # libnvidia-container chooses the folder for libraries by this file.
        _add(tar, "etc/debian_version", b"13\n", 0o644)
        _add(tar, "usr/bin/sh", Path(shell).read_bytes(), 0o755)
        for path in dict.fromkeys(libraries):
            _add(tar, _path_in_image(path), Path(path).read_bytes(), 0o755)
    return archive.getvalue()


def _nvidia_smi_libraries(libraries: Iterable[str]) -> list[str]:
    """Paths of the libraries that nvidia-smi opens by name; [] if ``libraries`` has no C library."""
    for path in map(Path, libraries):
        if path.name.startswith("libc.so"):
            return [str(path.with_name(name)) for name in _NVIDIA_SMI_LIBRARIES if path.with_name(name).exists()]
    return []


def _path_in_image(path: str) -> str:
    """The path in the image of a file of this machine; the image's /bin and /lib are links into /usr."""
    name = path.lstrip("/")
    return f"usr/{name}" if name.partition("/")[0] in _USR_LINKS else name


def linked(ldd: Iterable[str]) -> list[str]:
    """Paths of the libraries of a program, from the output lines of `ldd`; [] for a static program."""
    libraries = []
    for line in ldd:
        match = re.match(r"\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)", line)
        if match:
            libraries.append(match[1])
    return libraries


def _ldd(program: str) -> Sequence[str]:
    """The output lines of `ldd`, which lists a program's libraries."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """Add a file to the archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    tar.addfile(entry, io.BytesIO(content))


def _check_problem(found: str, gpu: bool) -> Problem:
    """The problem that the container did not run, saw no GPU, or could not start CUDA; ``found`` is its output."""
    if not gpu:
        return Problem(
            "docker-runs-no-container",
            f"the test container does not start: {found}",
            "a container engine that runs containers",
            "check `journalctl -u docker -u containerd -n 50`",
            "container_engine",
        )
    advice = "check `nvidia-smi` on the box and `nvidia-ctk --version`, then `docker info` for the runtimes"
    if explanation := known_message(found):
        advice = f"{explanation.cause}: {explanation.do}"
    if status := failed_start(found):
        return Problem(
            "gpu-not-in-container",
            f"the container sees the GPU, and CUDA does not start in it: {status}",
            "cuInit in a container returns 0",
            advice,
            "container_engine",
        )
    return Problem(
        "gpu-not-in-container",
        f"the container does not see the GPU: {found}",
        "`nvidia-smi -L` in a container",
        advice,
        "container_engine",
    )
