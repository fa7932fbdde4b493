"""Values that occur nowhere else, and a look for them in every file, process list and environment that a run leaves.

Looked for are their bytes, their base64 (where they begin at each of three places, standard and for URLs), their
hexadecimal digits, and what a URL has of them; in archives and in compressed files too.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import mmap
import os
import secrets
import stat
import string
import subprocess
import tarfile
import time
import urllib.parse
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

LARGE = 50_000_000  # bytes of a file that is not searched: weights, archives of engines
LETTERS = string.ascii_letters + string.digits
NOBODY = 65534
# Of the clone, what no run writes, and what is as large as an engine.
_NOT_OURS = (".git", ".venv", ".mypy_cache", ".ruff_cache", "node_modules")
_EVERY_S = 0.05
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


def canary(prefix: str = "", letters: str = LETTERS, count: int = 32) -> str:
    """A value that no file of this machine has."""
    return prefix + "".join(secrets.choice(letters) for _ in range(count))


@contextlib.contextmanager
def environment(canaries: Canaries, **more: str) -> Iterator[None]:
    """Have them in this process's environment, each as the variable of its name, and so in whatever it starts."""
    before = dict(os.environ)
    os.environ.update({**canaries.values, **more})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def left_behind(canaries: Canaries, clone: Path, searched: Path | None = None) -> list[tuple[str, Path, int]]:
    """What of them stands where no run may leave any: the clone, Ansible's and the tools' homes, /tmp.

    ``searched`` is left out: whoever asks has looked there.
    """
    but = {clone / name for name in _NOT_OURS} | ({searched} if searched else set())
    home = [Path.home() / name for name in (".ansible", ".cache", ".config", ".local", ".drafthouse")]
    folders = [clone, *home, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")]
    return [found for folder in folders for found in canaries.below(folder, but)]


def forms(value: str) -> set[bytes]:
    """What is looked for of a value."""
    raw = value.encode()
    found = {raw, raw.hex().encode(), raw.hex().upper().encode(), urllib.parse.quote(value, safe="").encode()}
    for before in range(3):
        packed = base64.b64encode(b"\0" * before + raw).decode()
        # What stands at its ends depends on what is beside it.
        inner = packed[{0: 0, 1: 2, 2: 3}[before] : (before + len(raw)) * 8 // 6]
        found |= {inner.encode(), inner.replace("+", "-").replace("/", "_").encode()}
    return found


class Canaries:
    """Values by name, and where they may stand: paths, by name of the value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self._made = time.time() - 2  # no file has them that has not changed since
        self._forms = {name: forms(value) for name, value in self.values.items()}

    def add(self, name: str, value: str) -> None:
        """Look for another one from now on."""
        self.values[name] = value
        self._forms[name] = forms(value)

    def within(self, data: bytes) -> set[str]:
        """The names of those that stand in it, in what is compressed in it too."""
        found = {name for name, wanted in self._forms.items() if any(form in data for form in wanted)}
        if data.startswith(_ARCHIVES):
            for part in _unpacked(data):
                found |= self.within(part)
        return found

    def below(self, folder: Path, but: Collection[Path] = ()) -> Iterator[tuple[str, Path, int]]:
        """Find them in the files below a folder, names of files and links too: name of the value, path, mode."""
        for root, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if Path(root, name) not in but]
            for path in (Path(root, name) for name in [*files, *folders]):
                with contextlib.suppress(FileNotFoundError, PermissionError):  # somebody's who works here too
                    seen = path.lstat()
                    if seen.st_ctime < self._made:
                        continue
                    mode = seen.st_mode
                    said = str(path.readlink()).encode() if stat.S_ISLNK(mode) else b""
                    if stat.S_ISREG(mode) and path.stat().st_size <= LARGE:
                        said = path.read_bytes()
                    # A folder's own name is told with each of its files.
                    for name in self.within(said) | self.within(path.name.encode()):
                        yield name, path, stat.S_IMODE(mode)


def _unpacked(data: bytes) -> Iterator[bytes]:
    with contextlib.suppress(OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, RuntimeError):
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                yield from (packed.read(name) for name in packed.namelist())
        else:
            yield gzip.decompress(data)


class Watched:
    """Looks as another user, while something runs: at command lines of all processes, and environments it may read.

    As root it becomes nobody, in a process of its own; otherwise environments of one's own processes are left out.
    """

    def __init__(self, canaries: Canaries) -> None:
        self._canaries = canaries
        self.looks = 0
        self._shared = mmap.mmap(-1, 8)  # the number of looks, while it looks
        self.found: set[str] = set()

    def __enter__(self) -> Watched:
        news, self._tell = os.pipe()
        self._said, says = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._tell)
            os.close(self._said)
            self._work(news, says)
        os.close(news)
        os.close(says)
        return self

    def looked(self) -> int:
        """How often it has looked through until now."""
        return int.from_bytes(self._shared[:8], "little")

    def also(self, name: str, value: str) -> None:
        """Look for another one from now on, in files too."""
        self._canaries.add(name, value)
        os.write(self._tell, f"{json.dumps([name, value])}\n".encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._tell)
        with os.fdopen(self._said) as said:
            text = said.read()
        os.waitpid(self._child, 0)
        self.looks, found = json.loads(text or '[0, ["the look itself failed"]]')
        self.found = set(found)

    def _work(self, news: int, says: int) -> None:
        """Look until the other end of a pipe is closed, and say what was found."""
        try:
            os.set_blocking(news, False)
            other = os.geteuid() == 0
            if other:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            looks = 0
            found: set[str] = set()
            while (said := _read(news)) != b"":
                for line in (said or b"").splitlines():
                    self._canaries.add(*json.loads(line))
                found |= set(self._look(environments=other))
                looks += 1
                self._shared[:8] = looks.to_bytes(8, "little")
                time.sleep(_EVERY_S)
            os.write(says, json.dumps([looks, sorted(found)]).encode())
        finally:
            os._exit(0)

    def _look(self, environments: bool) -> Iterable[str]:
        for process in Path("/proc").glob("[0-9]*"):
            for kind in ("cmdline", "environ") if environments else ("cmdline",):
                with contextlib.suppress(OSError):
                    data = (process / kind).read_bytes()
                    for name in self._canaries.within(data):
                        yield f"{name} in {kind} of {(process / 'comm').read_text().strip()}: {data[:120]!r}"


def _read(end: int) -> bytes | None:
    """What stands in a pipe: None where nothing does, nothing where it is closed."""
    try:
        return os.read(end, 65536)
    except BlockingIOError:
        return None


# Prints {name: {file: mode}} of every file of a box in which one of a name's forms stands. They come over stdin: in an
# argument they would be in a process list. What is no file of a disk is left out.
_SEARCH = r"""
import gzip, json, os, sys
asked = json.load(sys.stdin)
forms = {name: [form.encode() for form in found] for name, found in asked["forms"].items()}
found = {name: {} for name in forms}
for root, folders, files in os.walk(asked["root"]):
    folders[:] = [name for name in folders if os.path.join(root, name) not in ("/proc", "/sys", "/dev")]
    for file in files:
        path = os.path.join(root, file)
        if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > 50_000_000:
            continue
        try:
            with open(path, "rb") as stream:
                data = stream.read()
            if data.startswith(b"\x1f\x8b"):
                data += gzip.decompress(data)
        except (OSError, EOFError):
            continue
        for name, wanted in forms.items():
            if any(form in data for form in wanted):
                found[name][path] = oct(os.stat(path).st_mode & 0o777)
print(json.dumps(found))
"""


class Box(Protocol):
    """A host of the tests, in which a command can be run."""

    def exec(
        self, *argv: str, check: bool = True, timeout: float = 0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it."""


def on_the_box(box: Box, canaries: Canaries, root: str = "/") -> dict[str, dict[str, str]]:
    """Return for each of them the files of the box's disk that it stands in, and their modes."""
    wanted = {name: sorted(form.decode() for form in forms(value)) for name, value in canaries.values.items()}
    asked = json.dumps({"root": root, "forms": wanted})
    found: dict[str, dict[str, str]] = json.loads(box.exec("python3", "-c", _SEARCH, stdin=asked, timeout=300).stdout)
    return found
