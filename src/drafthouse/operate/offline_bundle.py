"""A bundle: one tar with all that a box needs and would fetch, for boxes that no network reaches.

Its first member is `manifest.json`, which names every other member with size and sha256:

    wheels/    what the box's own environment, the engine's and the controller's are made from
    weights/   in the layout of models_dir, with the notes of what was verified beside them
    images/    the engine's image as `docker image save` writes it, where the runtime is docker

Nothing is compressed (weights are noise to a compressor). A bundle is unpacked beside its place and takes it when every
byte was right. Standard library only, Python 3.10: it runs before anything of ours is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

from ..core.documents import json_of, text_of
from ..core.errors import DrafthouseError, one_problem

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell

MANIFEST = "manifest.json"
FORMAT = 1
COMPLETE = ".complete.json"  # beside the manifest of an unpacked bundle, written last
_MANIFEST_LIMIT = 16 << 20
_PIECE = 4 << 20
# What must stay free where it is unpacked, beyond the members' own bytes.
_MARGIN = 64 << 20
AGAIN = "copy the bundle again and compare its sha256 with that of the first copy, or make it again (make bundle)"


class BundledImage(TypedDict):
    """The engine's image, and its member of the bundle."""

    name: str
    file: str


class BundleFacts(TypedDict, total=False):
    """What a bundle was made for: ``python`` and ``machine`` are the box's."""

    format: str
    profile: str
    engine: str
    python: str
    machine: str
    image: BundledImage | None


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself. ``id`` is the sha256 of these very words; sizes are bytes."""

    id: str
    text: bytes
    facts: BundleFacts
    files: Mapping[str, tuple[int, str]]

    def size(self, below: str = "") -> int:
        """Return the bytes of all members whose names begin with ``below``."""
        return sum(size for name, (size, _) in self.files.items() if name.startswith(below))


# --- writing --------------------------------------------------------------------------------------------


def write_bundle(to: Path, members: Mapping[str, Path], facts: BundleFacts, tell: Tell) -> Manifest:
    """Write a bundle of ``members`` (name -> file) with ``facts`` about it. The same input gives the same bytes.

    Each file is read twice: once for the manifest, which comes first so that whoever unpacks knows what to expect, and
    once into the tar, when it must still be the same. Raises DrafthouseError.
    """
    names = sorted(members)
    sizes = {name: members[name].stat().st_size for name in names}
    total = sum(sizes.values())
    _require_room(to.parent, total)
    counted = _Counted(tell, "reading what goes into the bundle", total)
    files = {}
    for name in names:
        with members[name].open("rb") as stream:
            files[name] = {"size": sizes[name], "sha256": _sha256(stream, counted)}
    text = json.dumps({"format": FORMAT, **facts, "files": files}, indent=1, sort_keys=True).encode() + b"\n"
    manifest = _parsed(text, str(to))
    counted = _Counted(tell, f"writing {to.name}", total)
    partial = to.with_name(f"{to.name}.part")
    try:
        with partial.open("wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_header(MANIFEST, len(text)), io.BytesIO(text))
            for name in names:
                with members[name].open("rb") as stream:
                    reader = _Hashing(stream, counted)
                    tar.addfile(_header(name, sizes[name]), reader)
                if reader.digest.hexdigest() != manifest.files[name][1]:
                    raise OSError(f"{members[name]} changed while it was read")
        partial.replace(to)
    except OSError as error:
        found, needed = error.strerror or str(error), "free space, and files that do not change while they are read"
        raise one_problem("file-unwritable", found, needed, "fix that, then run again", str(to)) from error
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _header(name: str, size: int) -> tarfile.TarInfo:
    """Return a member's header without anything of this machine: no owner, no times."""
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = size, 0o644, 0
    return header


# --- reading --------------------------------------------------------------------------------------------


def read_manifest(bundle: Path) -> Manifest:
    """Return the manifest of a bundle. Raises DrafthouseError for a file that is none."""
    with _opened(bundle) as tar:
        return _manifest_of(tar, bundle)


def require_suits(manifest: Manifest, python: str, machine: str) -> None:
    """Raise DrafthouseError where the wheels of a bundle are none for this Python (``3.11``) or processor."""
    wanted, found = (manifest.facts.get("python"), manifest.facts.get("machine")), (python, machine)
    if wanted != found:
        do = f"make it again: make bundle PROFILE={manifest.facts.get('profile')} ARGS='--python {python}'"
        do = do if wanted[1] == machine else f"make it on a machine with a processor like the box's: {machine}"
        what = f"a bundle for Python {wanted[0]} on {wanted[1]}"
        raise one_problem(
            "bundle-for-another-box", what, f"one for the box: Python {python} on {machine}", do, "bundle"
        )


def is_unpacked(into: Path, manifest_id: str, below: str = "") -> bool:
    """Tell whether ``into`` holds that bundle (its members that begin with ``below``), by what is quickly seen.

    Names and sizes are compared; the bytes were, when it was unpacked.
    """
    try:
        text = (into / MANIFEST).read_bytes()
        done = json.loads((into / COMPLETE).read_bytes())
        manifest = _parsed(text, str(into))
    except (OSError, ValueError, DrafthouseError):
        return False
    if manifest.id != manifest_id or not isinstance(done, dict) or not below.startswith(done.get("below", " ")):
        return False
    return all(_has_size(into / name, size) for name, (size, _) in manifest.files.items() if name.startswith(below))


def unpack(bundle: Path, into: Path, tell: Tell, below: str = "", check: bool = False) -> bool:
    """Make ``into`` be what ``bundle`` holds (its members that begin with ``below``); return whether that changed it.

    Refused, with nothing put in place: a member that leaves the folder, a link, one that the manifest doesn't name or
    names with other bytes, a bundle that was cut short. Raises DrafthouseError.
    """
    manifest = read_manifest(bundle)
    if is_unpacked(into, manifest.id, below):
        return False
    _require_ours(into)
    if check:
        return True
    fresh, old = into.with_name(f".{into.name}.new"), into.with_name(f".{into.name}.old")
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        _require_room(into.parent, manifest.size(below))
        fresh.mkdir()
        _unpack_members(bundle, manifest, fresh, below, tell)
        (fresh / MANIFEST).write_bytes(manifest.text)
        (fresh / COMPLETE).write_text(json.dumps({"below": below}), "utf-8")
        if into.exists():
            into.rename(old)
        fresh.rename(into)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        do = "fix that, then run again"
        raise one_problem(
            "bundle-not-unpacked", error.strerror or str(error), "free space and write permission there", do, str(into)
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return True


def _unpack_members(bundle: Path, manifest: Manifest, into: Path, below: str, tell: Tell) -> None:
    missing = {name for name in manifest.files if name.startswith(below)}
    counted = _Counted(tell, f"unpacking {bundle.name}", manifest.size(below))
    with _opened(bundle) as tar:
        _manifest_of(tar, bundle)
        for member in _members(tar, bundle):
            if member.name not in manifest.files or member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                raise _refused(bundle, f"member {member.name!r}", "plain files that the manifest names")
            if not member.name.startswith(below):
                continue
            if member.name not in missing:
                raise _refused(bundle, f"member {member.name!r} twice", "each once")
            missing.remove(member.name)
            _unpack_one(bundle, tar, member, manifest.files[member.name], into, counted)
    if missing:
        raise _refused(
            bundle, f"no member {min(missing)!r} ({len(missing)} are missing)", "all files that the manifest names"
        )


def _unpack_one(
    bundle: Path,
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    wanted: tuple[int, str],
    into: Path,
    counted: _Counted,
) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise _refused(bundle, f"member {member.name!r}", "a plain file")
    path = into / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as target:
        reader = _Hashing(source, counted)
        with contextlib.suppress(tarfile.ReadError):  # cut short: then the size or the hash is not the one
            shutil.copyfileobj(reader, target, _PIECE)
        size = target.tell()
    if (size, reader.digest.hexdigest()) != wanted:
        found = f"{member.name} with {size} bytes and sha256 {reader.digest.hexdigest()}"
        raise _refused(bundle, found, f"{wanted[0]} bytes and sha256 {wanted[1]}")


@contextlib.contextmanager
def _opened(bundle: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(bundle, mode="r:") as tar:
            yield tar
    except tarfile.TarError as error:
        raise _refused(bundle, f"not a tar file, or a truncated one ({error})", "a bundle") from error
    except FileNotFoundError as error:
        do = "make it (make bundle PROFILE=name), or correct the path"
        raise one_problem("no-such-file", "no such file", "a bundle", do, str(bundle)) from error
    except IsADirectoryError as error:
        raise _refused(bundle, "a folder", "the bundle's tar file") from error


def _members(tar: tarfile.TarFile, bundle: Path) -> Iterator[tarfile.TarInfo]:
    """Yield what follows the manifest."""
    while (member := tar.next()) is not None:
        if not is_inside(member.name):
            raise _refused(bundle, f"member {member.name!r}", "names inside the folder")
        yield member


def _manifest_of(tar: tarfile.TarFile, bundle: Path) -> Manifest:
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg() or first.size > _MANIFEST_LIMIT:
        raise _refused(bundle, f"{first.name!r} as its first member" if first else "an empty tar", f"{MANIFEST} first")
    stream = tar.extractfile(first)
    return _parsed(stream.read() if stream else b"", str(bundle))


def _parsed(text: bytes, where: str) -> Manifest:
    try:
        data = json_of(text_of(text))
        files = {str(name): (int(entry["size"]), str(entry["sha256"])) for name, entry in data.pop("files").items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise one_problem("bundle-damaged", "an unreadable manifest", "a bundle", AGAIN, where) from error
    if data.get("format") != FORMAT:
        needed, do = f"format {FORMAT}", "make it with this version of the toolkit"
        raise one_problem("unknown-schema", f"a bundle of format {data.get('format')}", needed, do, where)
    if outside := [name for name in files if not is_inside(name)]:
        raise one_problem("bundle-damaged", f"member {outside[0]!r}", "names inside the folder", AGAIN, where)
    return Manifest(hashlib.sha256(text).hexdigest(), text, data, files)


def is_inside(name: str) -> bool:
    """Tell whether a member's name stays inside the folder, on every system, and is none of our own files."""
    plain = not (name.startswith("/") or "\\" in name or any(ord(letter) < 32 for letter in name))
    parts = name.split("/")
    return plain and not {"", ".", ".."} & set(parts) and len(parts) > 1 and PurePosixPath(name).as_posix() == name


def _refused(bundle: Path, found: str, needed: str) -> DrafthouseError:
    return one_problem("bundle-damaged", found, needed, AGAIN, str(bundle))


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _require_ours(into: Path) -> None:
    if into.is_symlink() or (into.exists() and not (into / COMPLETE).is_file()):
        needed, do = "a folder that a bundle was unpacked to, or none", "move it away"
        raise one_problem("folder-not-ours", "a folder without an unpacked bundle", needed, do, str(into))


def _require_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + _MARGIN:
        found, needed = f"{free / 1e9:.1f} GB free at {folder}", f"{(size + _MARGIN) / 1e9:.1f} GB for the bundle"
        raise one_problem("disk-full", found, needed, "free some space, or choose another place")


# --- counting -------------------------------------------------------------------------------------------


class _Counted:
    """Tells how many of all bytes went by."""

    def __init__(self, tell: Tell, text: str, total: int) -> None:
        self._tell, self._text, self._total, self._done = tell, text, total, 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._tell({"text": self._text, "done": self._done, "total": self._total, "unit": "bytes"})


class _Hashing(io.RawIOBase):
    """A stream whose bytes go through sha256 as they are read."""

    def __init__(self, stream: Any, counted: _Counted) -> None:
        self._stream, self._counted, self.digest = stream, counted, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._stream.read(size)
        self.digest.update(piece)
        self._counted(len(piece))
        return piece


def _sha256(stream: BinaryIO, counted: _Counted) -> str:
    reader = _Hashing(stream, counted)
    while reader.read(_PIECE):
        pass
    return reader.digest.hexdigest()
