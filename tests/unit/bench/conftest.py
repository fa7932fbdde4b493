"""NVIDIA's library, made here from C: pynvml speaks to it as to the driver's own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pynvml
import pytest

from tests.support.patient import patient

__all__ = ["patient"]
SOURCE = Path(__file__).resolve().parents[2] / "fakes" / "nvml.c"


@pytest.fixture(scope="session")
def nvml_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library lies, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("NVML's calls: no C compiler here to make a library that answers them")
    made = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE)], check=True)
    return made.parent


@pytest.fixture
def driver(nvml_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, for this process."""
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_folder / "libnvidia-ml.so.1")))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
