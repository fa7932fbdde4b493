"""What goes into the luggage, and that a damaged one is refused. The real one is packed in tests/gpu."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from tests.gpu import luggage
from tests.gpu.llama_build import is_kept, settings


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("CMakeLists.txt", True),
        ("LICENSE", True),
        ("ggml/src/ggml.c", True),
        ("ggml/src/ggml-cuda/mmq.cu", True),
        ("ggml/src/ggml-cpu/arch/x86/quants.c", True),
        ("tools/server/server.cpp", True),
        ("ggml/src/ggml-vulkan/ggml-vulkan.cpp", False),
        ("tools/server/tests/unit/test.py", False),
        ("tools/ui/ui.h.in", True),
        ("tools/ui/src/app.css", False),
        ("tools/mtmd/test-3.mp4", False),
        ("models/ggml-vocab.gguf", False),
        ("docs/build.md", False),
    ],
)
def test_what_of_llamacpp_is_kept(name: str, kept: bool) -> None:
    assert is_kept(name) is kept


def test_a_gpu_is_built_for_alone() -> None:
    assert settings("9.0")["CMAKE_CUDA_ARCHITECTURES"] == "90-real"
    assert settings("12.0")["CMAKE_CUDA_ARCHITECTURES"] == "120-real"
    assert settings("9.0")["GGML_CUDA"] == "ON"
    assert settings(None)["GGML_CUDA"] == "OFF"
    assert "CMAKE_CUDA_ARCHITECTURES" not in settings(None)


def wheel(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, name * 100)
    return out.getvalue()


def test_a_stored_wheel_holds_the_same_and_cmake_less() -> None:
    names = ("pkg/a.py", "pkg-1.dist-info/RECORD")
    with zipfile.ZipFile(io.BytesIO(luggage.stored(wheel(*names)))) as file:
        assert file.namelist() == list(names)
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())
        assert file.read("pkg/a.py") == b"pkg/a.py" * 100
    cmake = ("cmake/data/bin/cmake", "cmake/data/bin/ctest", "cmake/data/share/cmake-4.4/Modules/A.cmake")
    more = ("cmake/data/share/cmake-4.4/Help/a.rst", "cmake/__init__.py", "cmake-4.4.5.dist-info/RECORD")
    with zipfile.ZipFile(io.BytesIO(luggage.stored(wheel(*cmake, *more)))) as file:
        assert file.namelist() == [cmake[0], cmake[2], more[1], more[2]]


def packed(path: Path, files: dict[str, bytes], listed: dict[str, str]) -> Path:
    manifest = {"format": 1, "python": "3.12", "machine": "x86_64", "llamacpp_build": 1, "files": listed}
    with tarfile.open(path, "w:xz") as tar:
        for name, data in {"luggage.json": json.dumps(manifest).encode(), **files}.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return path


A = "559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd"  # of "A"


def test_whole_luggage_is_unpacked(tmp_path: Path) -> None:
    path = packed(tmp_path / "l", {"a/b.txt": b"A"}, {"a/b.txt": A})
    assert luggage.unpack(path, tmp_path / "out")["python"] == "3.12"
    there = tmp_path / "out" / "a" / "b.txt"
    assert there.read_bytes() == b"A"
    os.utime(there, (1, 1))
    luggage.unpack(path, tmp_path / "out")
    assert there.stat().st_mtime == 1, "a build would compile it again"
    there.write_bytes(b"B")
    luggage.unpack(path, tmp_path / "out")
    assert there.read_bytes() == b"A"


@pytest.mark.parametrize(
    ("files", "listed"),
    [
        ({"a.txt": b"B"}, {"a.txt": A}),
        ({"a.txt": b"A", "more.txt": b"A"}, {"a.txt": A}),
        ({}, {"a.txt": A}),
        ({"../a.txt": b"A"}, {"../a.txt": A}),
    ],
)
def test_damaged_luggage_is_refused(tmp_path: Path, files: dict[str, bytes], listed: dict[str, str]) -> None:
    path = packed(tmp_path / "l", files, listed)
    with pytest.raises(DrafthouseError) as caught:
        luggage.unpack(path, tmp_path / "in" / "out")
    assert caught.value.problems[0].code == "file-unreadable"
    assert not (tmp_path / "in" / "a.txt").exists()
