"""What a box served, when and why it ended, and all that is needed to serve it again.

Standard library only, Python 3.10. ``served/history.jsonl`` in the box's home has a line for each event; what should
serve now is read out of it and stands nowhere else. ``served/releases/<id>/`` is one release: the resolved profile with
both arms' rendered files, and for each arm that was served what held it running (supervisord's configuration, or the
container).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .documents import BadDocument, json_of, read_json
from .problems import HouseError, Problem
from .shape import Findings, List, Map, Table, Value, check

SERVED, ENDED, REFUSED, ROLLED_BACK, SWITCHED = EVENTS = ("served", "ended", "refused", "rolled_back", "switched")
# The release that serves and the four before it.
KEEP = 5
# Lines of history that are kept at least; it is cut when it has twice as many.
LINES = 1000
# Room that is given back when the disk is full: without it the last good server could not come back.
BALLAST_BYTES = 16 << 20
# Seconds since 1970 that a calendar has a date for.
_LATEST = 1e11
_EVENT = Map(
    {
        "event": Value(str, required=True, choices=EVENTS),
        "at": Value(float, required=True, low=0, high=_LATEST),
        **dict.fromkeys(("release", "profile", "arm", "why"), Value(str, null=True)),
    },
    others=True,
)
_DIGITS = 4
_LEFT_OUT = ("box", "suites", "extras")
# What serving a release again reads of it.
_FILE = Map({"path": Value(str, required=True), "mode": Value(str), "content": Value(str, required=True)}, others=True)
_RESOLVED = Map(
    {
        "profile": Value(str, required=True),
        "engine": Map({"home": Value(str, null=True)}, required=True, others=True),
        "site": Map({"home": Value(str), "runtime": Value(str), "port": Value(int)}, required=True, others=True),
        "target": Map({"served_name": Value(str, null=True)}, required=True, others=True),
        "arms": Table(Map({"files": List(_FILE)}, others=True), required=True),
        "key_file": Value(str, required=True),
        "weights": List(Map({"path": Value(str, required=True), "from_path": Value(str)}, others=True), null=True),
        "identity": Value(str, null=True),
    },
    others=True,
)
_RUNNING = Map({}, others=True)
_UNFINISHED = "."  # a folder that is being written, or removed


def served_folder(home: str | Path) -> Path:
    """Return the folder of history and releases."""
    return Path(home) / "served"


# --- history ------------------------------------------------------------------------------------


def read_history(home: str | Path) -> list[dict[str, Any]]:
    """Return the events, the oldest first; what is no event is left out (`damage` names it)."""
    return [event for _, event in _lines(home) if event is not None]


def damage(home: str | Path) -> list[Problem]:
    """Return what of history and releases cannot be read, each by its file."""
    path = _history_file(home)
    found = [
        Problem("a line that is no event", "one JSON object with 'at' and 'event'", "remove it", f"{path}: line {line}")
        for line, event in _lines(home)
        if event is None
    ]
    return found + damaged_releases(home)


def damaged_releases(home: str | Path) -> list[Problem]:
    """Return what of the kept releases cannot be read, each by its file."""
    found: list[Problem] = []
    for release in release_ids(home):
        try:
            read_release(home, release)
        except HouseError as error:
            found += error.problems
    return found


def _history_file(home: str | Path) -> Path:
    return served_folder(home) / "history.jsonl"


def _lines(home: str | Path) -> list[tuple[int, dict[str, Any] | None]]:
    try:
        return events_of(_history_file(home).read_text("utf-8", "replace"))
    except OSError:
        return []


def events_of(text: str) -> list[tuple[int, dict[str, Any] | None]]:
    """Return the number of each line of a history with its event, None where it is none.

    A last line without its end is what a kill or a full disk leaves of a line: it never came to be.
    """
    found = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        if not line.strip():
            continue
        try:
            event = json_of(line)
        except BadDocument:
            event = None
        whole = isinstance(event, dict) and check(event, _EVENT, Findings(""))
        found.append((number, event if whole else None))
    return found


def add_event(home: str | Path, event: str, **fields: Any) -> None:
    """Add an event of this moment, on the disk when this returns. Raises HouseError where it cannot be written."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is none of {', '.join(EVENTS)}")
    line = json.dumps({"at": round(time.time(), 3), "event": event, **fields}) + "\n"
    with _locked(home):
        _with_room(home, lambda: _append(_history_file(home), line))


def _append(path: Path, line: str) -> None:
    text = path.read_bytes() if path.exists() else b""
    if text.count(b"\n") >= 2 * LINES:
        _write(path, _newest(text[: text.rfind(b"\n") + 1].splitlines(keepends=True)) + line.encode())
        return
    if text and not text.endswith(b"\n"):
        _write(path, text[: text.rfind(b"\n") + 1] + line.encode())
        return
    with path.open("ab") as stream:
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())
    _sync(path.parent)


def _newest(lines: Sequence[bytes]) -> bytes:
    """Return the last lines of a history, and before them the one that says what serves, however old it is."""
    kept = list(lines[-LINES:])
    for line in reversed(lines):
        event = next((event for _, event in events_of(line.decode("utf-8", "replace")) if event), None)
        if event and event["event"] in (SERVED, ROLLED_BACK, ENDED):
            return b"".join(kept if line in kept else [line, *kept])
    return b"".join(kept)


def serving(history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what should serve after these events: release, profile, arm, engine, version, since when (``at``)."""
    now: dict[str, Any] | None = None
    names = ("at", "release", "profile", "arm", "engine", "version")
    for event in history:
        if event["event"] in (SERVED, ROLLED_BACK):
            now = {name: event.get(name) for name in names}
        elif event["event"] == SWITCHED and now:
            now = {**now, "arm": event.get("arm"), "at": event["at"]}
        elif event["event"] == ENDED:
            now = None
    return now


def current(home: str | Path) -> dict[str, Any] | None:
    """Return what should serve now, the last good server; None where nothing should."""
    return serving(read_history(home))


# --- releases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """One release. ``running``: by arm, what held it running when it was served."""

    id: str
    resolved: Mapping[str, Any]
    running: Mapping[str, Mapping[str, Any]]

    def facts(self, arm: str) -> dict[str, Any]:
        """Return how an event names it."""
        engine = self.resolved["engine"]
        return {
            "release": self.id, "profile": self.resolved["profile"], "arm": arm,
            "engine": engine["id"], "version": engine["version"],
        }  # fmt: skip


def identity(resolved: Mapping[str, Any]) -> str:
    """Return a hash of all that is put on a box to serve a resolved profile, and of nothing else."""
    engine, site = resolved["engine"], resolved["site"]
    parts = {
        "profile": resolved["profile"],
        "engine": [engine.get(name) for name in ("id", "version", "runtime", "home", "image")],
        "site": [site.get(name) for name in ("host", "port", "home", "runtime")],
        "name": resolved["target"]["served_name"],
        "weights": [[item.get("path"), item.get("details")] for item in resolved.get("weights") or []],
        "arms": {
            arm: [data.get(name) for name in ("files", "container", "environment")]
            for arm, data in resolved["arms"].items()
        },
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def release_ids(home: str | Path) -> list[str]:
    """Return the releases that are kept, the oldest first."""
    folder = served_folder(home) / "releases"
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.isdigit() and path.is_dir())
    except OSError:
        return []


def read_release(home: str | Path, release: str) -> Release:
    """Return a release. Raises HouseError, which names the file that is missing or wrong."""
    folder = _folder_of(home, release)
    resolved = _read(folder / "resolved.json", _RESOLVED)
    running = {path.stem.partition("-")[2]: _read(path, _RUNNING) for path in sorted(folder.glob("running-*.json"))}
    return Release(release, resolved, running)


def _folder_of(home: str | Path, release: str) -> Path:
    return served_folder(home) / "releases" / release


def _read(path: Path, shape: Map) -> dict[str, Any]:
    do = "serve another one: make rollback TO=ID (make history shows them), or a profile anew: make NAME"
    needed = "a file of a release, as it was written when it served"
    data = read_json(path, needed, do)
    missing = [
        name for name, field in shape.fields.items() if field.required and isinstance(data, dict) and name not in data
    ]
    if not isinstance(data, dict) or missing:
        found = f"no {', '.join(missing)}" if missing else f"a {type(data).__name__}"
        raise HouseError(Problem(found, needed, do, str(path)))
    findings = Findings(str(path))
    if not check(data, shape, findings):
        raise HouseError([replace(problem, do=do) for problem in findings.problems])
    return data


def keep_release(home: str | Path, resolved: Mapping[str, Any], arm: str, running: Mapping[str, Any]) -> Release:
    """Write down what serves now; return its release, the same one as before for the same files.

    A release comes to be as a whole: its folder is written beside its place, and renamed. Raises HouseError.
    """
    mine = identity(resolved)
    with _locked(home):
        for release in reversed(release_ids(home)):
            with contextlib.suppress(HouseError):
                kept = read_release(home, release)
                if kept.resolved.get("identity") != mine:
                    continue
                if kept.running.get(arm) != running:
                    path = _folder_of(home, release) / f"running-{arm}.json"
                    _with_room(home, partial(_write, path, _json(running)))
                return Release(release, kept.resolved, {**kept.running, arm: running})
        made = _next_id(home)
        data = {name: value for name, value in resolved.items() if name not in _LEFT_OUT} | {"identity": mine}
        _with_room(home, lambda: _write_release(_folder_of(home, made), data, arm, running))
        return Release(made, data, {arm: running})


def _next_id(home: str | Path) -> str:
    """Return an id that no release had, also none that is gone."""
    seen = [str(event.get("release") or "") for event in read_history(home)] + release_ids(home)
    return f"{max((int(text) for text in seen if text.isdigit()), default=0) + 1:0{_DIGITS}d}"


def _write_release(folder: Path, data: Mapping[str, Any], arm: str, running: Mapping[str, Any]) -> None:
    new = folder.with_name(f"{_UNFINISHED}{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    _write(new / "resolved.json", _json(data))
    _write(new / f"running-{arm}.json", _json(running))
    # For people: to read, and to run by hand.
    for name, one in data["arms"].items():
        for file in one["files"]:
            _write(new / name / file["path"], str(file["content"]).encode(), int(file["mode"], 8))
    new.rename(folder)
    _sync(folder.parent)


def prune_releases(home: str | Path, keep: int = KEEP) -> list[str]:
    """Remove all but the ``keep`` releases that served last; return what was removed.

    What serves now is the last of them. Weights, images and environments are not touched here.
    """
    with _locked(home):
        served = [event.get("release") for event in reversed(read_history(home)) if event["event"] != REFUSED]
        ranked = [*dict.fromkeys(str(release) for release in served if release)]
        # One that no event names was made by a run that was killed before it served.
        there = release_ids(home)
        gone = [release for release in there if release not in ranked[: max(1, keep)]]
        for release in gone:
            folder = _folder_of(home, release)
            leaving = folder.with_name(f"{_UNFINISHED}{release}.gone")
            shutil.rmtree(leaving, ignore_errors=True)
            folder.rename(leaving)
            shutil.rmtree(leaving, ignore_errors=True)
        return gone


def earlier(home: str | Path) -> str | None:
    """Return the release that served before the one that serves, or that served last; None where there is none.

    One that was left by going back is out: going back twice leads two back, and not forth again.
    """
    before: list[str] = []
    for event in read_history(home):
        release = str(event.get("release") or "")
        if event["event"] not in (SERVED, ROLLED_BACK) or not release:
            continue
        if release in before and event["event"] == ROLLED_BACK:
            del before[before.index(release) :]
        before = [*(one for one in before if one != release), release]
    there = release_ids(home)
    return next((release for release in reversed(before[:-1]) if release in there), None)


def weights_kept(home: str | Path) -> set[str]:
    """Return the paths of the weights that kept releases need: they must not be pruned.

    A release whose file cannot be read keeps nothing: `damage` names it.
    """
    paths: set[str] = set()
    for release in release_ids(home):
        with contextlib.suppress(HouseError):
            resolved = read_release(home, release).resolved
            paths |= {str(item["path"]) for item in resolved.get("weights") or []}
            paths |= {str(item["from_path"]) for item in resolved.get("weights") or [] if "from_path" in item}
    return paths


# --- writing --------------------------------------------------------------------------------------


def make_room(home: str | Path) -> None:
    """Give back what was put aside for a full disk."""
    (served_folder(home) / "ballast").unlink(missing_ok=True)


def put_ballast(home: str | Path, size: int = BALLAST_BYTES) -> None:
    """Put room aside for the day when the disk is full; nothing happens where it is full already."""
    path = served_folder(home) / "ballast"
    with contextlib.suppress(OSError):
        if path.exists() and path.stat().st_size == size:
            return
        if shutil.disk_usage(path.parent).free < 4 * size:
            return
        with path.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)


def _with_room(home: str | Path, write: Callable[[], None]) -> None:
    """Write; where the disk is full, once more with the room that was put aside. Raises HouseError."""
    try:
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            make_room(home)
            write()
    except OSError as error:
        raise HouseError(
            Problem(
                error.strerror or str(error),
                "a folder that can be written, for what this box serves",
                "free some space, or connect as the user that set this box up",
                str(served_folder(home)),
            )
        ) from error


@contextlib.contextmanager
def _locked(home: str | Path) -> Iterator[None]:
    """Keep other writers away: a run, and what watches on the box."""
    folder = served_folder(home)

    def made() -> None:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        (folder / "lock").touch()

    _with_room(home, made)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that a reader, and whoever comes after a power cut, finds all of the old or of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.new")
    try:
        with partial.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.chmod(mode)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
