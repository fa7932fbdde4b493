"""Whether CUDA starts in a container: the image's own Python calls the cuInit of a made library, in a chroot."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from drafthouse.core.messages import known_message
from drafthouse.host.docker.cuda_start import failed_start, interpreter
from drafthouse.host.docker.gpu_check import root_archive
from tests.support.programs import needs

pytestmark = pytest.mark.processes

LISTING = "#!/bin/sh\necho 'GPU 0: NVIDIA H100 NVL (UUID: GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8)'\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of the check, unpacked, with an nvidia-smi that lists a GPU."""
    folder = tmp_path_factory.mktemp("root")
    with tarfile.open(fileobj=io.BytesIO(root_archive(interpreter()))) as archive:
        archive.extractall(folder)
    listing = folder / "usr/bin/nvidia-smi"
    listing.write_text(LISTING)
    listing.chmod(0o755)
    return folder


def output_in(root: Path) -> str:
    """What the check's command prints in the image."""
    python = interpreter()
    assert python
    environment = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/lib"}
    command = ["/usr/sbin/chroot", str(root), *python.command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.startswith("GPU 0: NVIDIA H100 NVL"), done.stderr
    return done.stdout


@needs("cc")
@pytest.mark.skipif(os.geteuid() != 0, reason="a chroot is root's")
@pytest.mark.parametrize("status", [0, 999, 802])
def test_the_images_python_starts_cuda(root: Path, tmp_path: Path, status: int) -> None:
    source = tmp_path / "cuda.c"
    source.write_text(f"int cuInit(unsigned flags) {{ return {status}; }}")
    subprocess.run(["cc", "-shared", "-o", str(root / "usr/lib/libcuda.so.1"), str(source)], check=True)
    assert failed_start(output_in(root)) == (f"cuInit: status {status}" if status else None)


@pytest.mark.skipif(os.geteuid() != 0, reason="a chroot is root's")
def test_a_container_without_the_library_is_told(root: Path) -> None:
    (root / "usr/lib/libcuda.so.1").unlink(missing_ok=True)
    assert "no CUDA library" in str(failed_start(output_in(root)))


def test_a_failed_start_is_explained() -> None:
    assert failed_start("GPU 0: H100\n") is None
    for status, advice in ((999, "nvidia-modprobe"), (802, "fabricmanager")):
        known = known_message(f"cuInit: status {status}")
        assert known
        assert advice in known.do
