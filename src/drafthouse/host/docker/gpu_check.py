"""A container that runs, and in which CUDA starts where there is a GPU: the proof that an engine works.

No registry is asked. The image is made of the box's own shell, or of its `nvidia-smi`'s needs, with the
libraries that they are linked with: they fit the box's kernel and processor by nature, and no program has to
be brought along for each processor. Driver and `nvidia-smi` come into the container from NVIDIA's toolkit,
which is what is to be proven. The image and the container are removed again.
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
from ...core.messages import explained
from ..nvidia_smi import listed
from .cuda_start import Interpreter, failed_start, interpreter

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

IMAGE = "drafthouse-check"
_WORD = "a container runs"
_MERGED = ("bin", "lib", "lib32", "lib64", "sbin")
# nvidia-smi opens these by name; they are found beside the C library.
_ALSO = ("libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
# Where the toolkit puts the driver's libraries: on Debian and Ubuntu, and elsewhere.
_LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu:/usr/lib64"


@dataclass(frozen=True)
class Proof:
    """What the container printed and how long it all took in seconds."""

    output: str
    gpus: int
    seconds: float


def prove(gpu: bool, timeout_s: float = 60.0, devices: Sequence[str] = ()) -> Proof:
    """Run the container; DrafthouseError says why it did not run or what it did not see.

    ``devices``: the GPUs that it is given, as indices or UUIDs; none means all.
    """
    begun = time.monotonic()
    api = DockerApi(timeout_s=timeout_s)
    tag = f"{IMAGE}:{os.getpid()}"
    try:
        python = interpreter() if gpu else None
        api.call("POST", "/images/create", root_archive(python), fromSrc="-", repo=IMAGE, tag=str(os.getpid()))
        try:
            status, output = _run(api, tag, _command(gpu, python), _gpus(devices) if gpu else [])
        finally:
            api.call("DELETE", f"/images/{tag}", force="true")
    except (OSError, EngineError) as error:
        raise DrafthouseError(_no_container(str(error), gpu)) from error
    seen = listed(output)
    works = status == 0 and _WORD in output
    if gpu:
        # A Python that does not run in the container asks nothing of CUDA: then the list of GPUs is the proof.
        works = bool(seen) and not failed_start(output)
    if not works:
        raise DrafthouseError(_no_container(f"status {status}: {output.strip() or '(it printed nothing)'}", gpu))
    return Proof(output.strip(), len(seen), round(time.monotonic() - begun, 1))


def _gpus(devices: Sequence[str]) -> list[Json]:
    """What `--gpus all` asks Docker for, or `--gpus device=0,1`; the capability `compute` brings CUDA's library."""
    which: dict[str, Json] = {"DeviceIDs": list(devices)} if devices else {"Count": -1}
    return [{**which, "Capabilities": [["gpu", "utility", "compute"]]}]


def _command(gpu: bool, python: Interpreter | None) -> list[str]:
    """What the container runs: a word, or the list of GPUs, after which CUDA is started."""
    if not gpu:
        return ["/bin/sh", "-c", f"echo {_WORD}"]
    return python.command if python else ["nvidia-smi", "-L"]


def _run(api: DockerApi, image: str, command: Sequence[str], gpus: Sequence[Json]) -> tuple[int, str]:
    """The exit status of a container of the image, and all that it printed."""
    made = api.call(
        "POST",
        "/containers/create",
        {
            "Image": image,
            "Cmd": list(command),
            "Env": ["PATH=/usr/bin:/usr/local/nvidia/bin", f"LD_LIBRARY_PATH={_LIBRARIES}"],
            "HostConfig": {"NetworkMode": "none", "DeviceRequests": list(gpus)},
        },
    )["Id"]
    try:
        api.call("POST", f"/containers/{made}/start")
        ended = api.call("POST", f"/containers/{made}/wait")
        return int(ended["StatusCode"]), api.log(made)
    finally:
        api.call("DELETE", f"/containers/{made}", force="true")


def root_archive(python: Interpreter | None) -> bytes:
    """A root file system as a tar: a shell, the C library and its loader, the folders that are needed, and a Python."""
    shell = os.path.realpath(shutil.which("sh") or "/bin/sh")
    libraries = linked(_ldd(shell))
    if python:
        for program in python.binaries:
            libraries += linked(_ldd(program))
        libraries += [python.program, *python.modules]
    libraries += _beside_c_library(libraries)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder in ("etc", "proc", "sys", "dev", "tmp", "run", "var", "usr"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name in _MERGED:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
        # libnvidia-container looks for this to know where libraries belong.
        _add(tar, "etc/debian_version", b"13\n", 0o644)
        _add(tar, "usr/bin/sh", Path(shell).read_bytes(), 0o755)
        for path in dict.fromkeys(libraries):
            _add(tar, _placed(path), Path(path).read_bytes(), 0o755)
    return packed.getvalue()


def _beside_c_library(libraries: Iterable[str]) -> list[str]:
    """The paths of the libraries that nvidia-smi opens by name; none where a program has no C library."""
    for path in map(Path, libraries):
        if path.name.startswith("libc.so"):
            return [str(path.with_name(name)) for name in _ALSO if path.with_name(name).exists()]
    return []


def _placed(path: str) -> str:
    """Where a file of the box lies in the image, whose /bin and /lib are links into /usr."""
    name = path.lstrip("/")
    return f"usr/{name}" if name.partition("/")[0] in _MERGED else name


def linked(ldd: Iterable[str]) -> list[str]:
    """The files that a program needs, from the lines that `ldd` prints; nothing for a static one."""
    found = []
    for line in ldd:
        match = re.match(r"\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)", line)
        if match:
            found.append(match[1])
    return found


def _ldd(program: str) -> Sequence[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.splitlines()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _no_container(found: str, gpu: bool) -> Problem:
    """Why the container did not run, saw no GPU, or could not start CUDA."""
    if not gpu:
        return Problem(
            "docker-runs-no-container",
            f"the test container does not start: {found}",
            "a container engine that runs containers",
            "check `journalctl -u docker -u containerd -n 50`",
            "container_engine",
        )
    advice = "check `nvidia-smi` on the box and `nvidia-ctk --version`, then `docker info` for the runtimes"
    if known := explained(found):
        advice = f"{known.cause}: {known.do}"
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
