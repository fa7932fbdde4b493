"""What a box served, when and why it ended, and all that is needed to serve it again.

Standard library only, Python 3.10. ``served/history.jsonl`` in the box's home has a line for each event; what should
serve now is read out of it and stands nowhere else. ``served/releases/<id>/`` is one release: the resolved profile with
both arms' rendered files, and for each arm that was served what held it running (supervisord's configuration, or the
container).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import read_json
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import replace_file, sync
from ..core.schema import Findings, List, Map, Table, Value, check
from .history import (
    REFUSED,
    ROLLED_BACK,
    SERVED,
    Serving,
    locked,
    read_history,
    served_folder,
    serving,
    with_room,
)

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import Running
    from drafthouse.serving.history import ServerFacts, Serving

# The release that serves and the four before it.
KEEP = 5
_DIGITS = 4
_LEFT_OUT = ("box", "suites", "suites_file", "prompts", "extras", "overrides")
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


# --- history ------------------------------------------------------------------------------------


def damaged_releases(home: str | Path) -> list[Problem]:
    """What of the kept releases cannot be read, each by its file."""
    found: list[Problem] = []
    for release in release_ids(home):
        try:
            read_release(home, release)
        except DrafthouseError as error:
            found += error.problems
    return found


def current(home: str | Path) -> Serving | None:
    """What should serve now, the last good server; None where nothing should."""
    return serving(read_history(home))


def result_keys(home: str | Path) -> list[str]:
    """The keys of the results of what served on a box, what serves now first; of kept releases alone."""
    releases: dict[str, None] = {}
    for event in reversed(read_history(home)):
        if event["event"] in (SERVED, ROLLED_BACK):
            releases[str(event.get("release"))] = None
    keys: dict[str, None] = {}
    for release in releases:
        with contextlib.suppress(DrafthouseError):
            keys[str(read_release(home, release).resolved.get("key") or "")] = None
    keys.pop("", None)
    return list(keys)


# --- releases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """One release. ``running``: by arm, what held it running when it was served."""

    id: str
    resolved: ResolvedProfile
    running: Mapping[str, Running]

    def facts(self, arm: str) -> ServerFacts:
        """How an event names it."""
        engine = self.resolved["engine"]
        return {
            "release": self.id, "profile": self.resolved["profile"], "arm": arm,
            "engine": engine["id"], "version": engine["version"],
        }  # fmt: skip


def identity(resolved: ResolvedProfile) -> str:
    """A hash of all that is put on a box to serve a resolved profile, and of nothing else."""
    engine, site = resolved["engine"], resolved["site"]
    weights = [[item.get("path"), item.get("details")] for item in resolved.get("weights") or []]
    arms: dict[str, list[object]] = {}
    for arm, data in resolved["arms"].items():
        arms[arm] = [data.get("files"), data.get("container"), data.get("environment")]
    parts = {
        "profile": resolved["profile"],
        "engine": [engine.get(name) for name in ("id", "version", "runtime", "home", "image")],
        "site": [site.get(name) for name in ("host", "port", "home", "runtime")],
        "name": resolved["target"]["served_name"],
        "weights": weights,
        "arms": arms,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def release_ids(home: str | Path) -> list[str]:
    """The releases that are kept, the oldest first."""
    folder = served_folder(home) / "releases"
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.isdigit() and path.is_dir())
    except OSError:
        return []


def read_release(home: str | Path, release: str) -> Release:
    """A release. Raises DrafthouseError, which names the file that is missing or wrong."""
    folder = _folder_of(home, release)
    resolved: ResolvedProfile = _read(folder / "resolved.json", _RESOLVED)
    running: dict[str, Running] = {}
    for path in sorted(folder.glob("running-*.json")):
        running[path.stem.removeprefix("running-")] = _read(path, _RUNNING)
    return Release(release, resolved, running)


def _folder_of(home: str | Path, release: str) -> Path:
    return served_folder(home) / "releases" / release


def _read(path: Path, shape: Map) -> Any:
    """A file of a release, whose shape was looked at."""
    do = "serve another one: make rollback TO=ID (make history shows them), or a profile again: make NAME"
    needed = "a release file, unchanged since it served"
    data = read_json(path, needed, do)
    if not isinstance(data, dict):
        raise one_problem("file-malformed", f"a {type(data).__name__}", needed, do, str(path))
    missing = [name for name, field in shape.fields.items() if field.required and name not in data]
    if missing:
        raise one_problem("file-malformed", f"no {', '.join(missing)}", needed, do, str(path))
    findings = Findings(str(path))
    if not check(data, shape, findings):
        raise DrafthouseError([replace(problem, do=do) for problem in findings.problems])
    return data


def keep_release(home: str | Path, resolved: ResolvedProfile, arm: str, running: Running) -> Release:
    """Write down what serves now; return its release, the same one as before for the same files.

    A release comes to be as a whole: its folder is written beside its place, and renamed. Raises DrafthouseError.
    """
    mine = identity(resolved)
    with locked(home):
        for release in reversed(release_ids(home)):
            with contextlib.suppress(DrafthouseError):
                kept = read_release(home, release)
                if kept.resolved.get("identity") != mine:
                    continue
                if kept.running.get(arm) != running:
                    path = _folder_of(home, release) / f"running-{arm}.json"
                    with_room(home, partial(replace_file, path, _json(running)))
                return Release(release, kept.resolved, {**kept.running, arm: running})
        made = _next_id(home)
        data: ResolvedProfile = {**resolved, "identity": mine}
        with_room(home, lambda: _write_release(_folder_of(home, made), data, arm, running))
        return Release(made, data, {arm: running})


def _next_id(home: str | Path) -> str:
    """An id that no release had, also none that is gone."""
    seen = [str(event.get("release") or "") for event in read_history(home)] + release_ids(home)
    highest = max(map(int, filter(str.isdigit, seen)), default=0)
    return f"{highest + 1:0{_DIGITS}d}"


def _write_release(folder: Path, data: ResolvedProfile, arm: str, running: Running) -> None:
    new = folder.with_name(f"{_UNFINISHED}{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    kept = {name: value for name, value in data.items() if name not in _LEFT_OUT}
    replace_file(new / "resolved.json", _json(kept))
    replace_file(new / f"running-{arm}.json", _json(running))
    # For people: to read, and to run by hand.
    for name, rendered in data["arms"].items():
        for file in rendered["files"]:
            replace_file(new / name / file["path"], str(file["content"]).encode(), int(file["mode"], 8))
    new.rename(folder)
    sync(folder.parent)


def prune_releases(home: str | Path, keep: int = KEEP) -> list[str]:
    """Remove all but the ``keep`` releases that served last; return what was removed.

    What serves now is the last of them. Weights, images and environments are not touched here.
    """
    with locked(home):
        ranked: list[str] = []
        for event in reversed(read_history(home)):
            release = str(event.get("release") or "")
            if release and event["event"] != REFUSED and release not in ranked:
                ranked.append(release)
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
    """The release that served before the one that serves, or that served last; None where there is none.

    One that was left by going back is out: going back twice leads two back, and not forth again.
    """
    before: list[str] = []
    for event in read_history(home):
        release = str(event.get("release") or "")
        if event["event"] not in (SERVED, ROLLED_BACK) or not release:
            continue
        if release in before and event["event"] == ROLLED_BACK:
            del before[before.index(release) :]
        if release in before:
            before.remove(release)
        before.append(release)
    there = release_ids(home)
    for release in reversed(before[:-1]):
        if release in there:
            return release
    return None


def weights_kept(home: str | Path) -> set[str]:
    """The paths of the weights that kept releases need: they must not be pruned.

    A release whose file cannot be read keeps nothing: `damaged_releases` names it.
    """
    paths: set[str] = set()
    for release in release_ids(home):
        with contextlib.suppress(DrafthouseError):
            for item in read_release(home, release).resolved.get("weights") or []:
                paths.add(str(item["path"]))
                if "from_path" in item:
                    paths.add(str(item["from_path"]))
    return paths


# --- writing --------------------------------------------------------------------------------------


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
