"""The releases that a box keeps: all that is needed to start a server again, in ``served/releases/<id>/`` of its home.

A release has the resolved profile, the rendered files of its arms (baseline and speculative), and for each arm that
served a record of how it ran: supervisord's configuration, or the container. ``served/history.jsonl`` has an event for
each change (`history.py`); it alone tells which server should run. Standard library only, Python 3.10.
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
    history_lock,
    read_history,
    served_folder,
    server_after,
    with_room,
)

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.containers import ArmRecord
    from drafthouse.serving.history import ServerFacts, Serving

KEEP = 5  # releases that are kept by default: the present one and four before it
_DIGITS = 4  # of an id; ids are numbers with zeros in front, so that they sort as text
# Parts of a resolved profile that a server does not need; a release does not store them.
_LEFT_OUT = ("box", "suites", "suites_file", "prompts", "extras", "overrides")
# The form of a stored profile: the keys that `restore.py` reads. All others are allowed.
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
_RECORD = Map({}, others=True)  # the form of an arm's record: any mapping
_UNFINISHED = "."  # prefix of a folder that is being written or removed


def damaged_releases(home: str | Path) -> list[Problem]:
    """The problems of kept releases that cannot be read; each problem names its file."""
    problems: list[Problem] = []
    for release_id in release_ids(home):
        try:
            read_release(home, release_id)
        except DrafthouseError as error:
            problems += error.problems
    return problems


def current_server(home: str | Path) -> Serving | None:
    """The server that should run now, with its release and arm; None if there is none."""
    return server_after(read_history(home))


def result_keys(home: str | Path) -> list[str]:
    """The keys of the benchmark results of the kept releases, the one that served last first; no key twice."""
    ids: dict[str, None] = {}
    for event in reversed(read_history(home)):
        if event["event"] in (SERVED, ROLLED_BACK):
            ids[str(event.get("release"))] = None
    keys: dict[str, None] = {}
    for release_id in ids:
        with contextlib.suppress(DrafthouseError):
            keys[str(read_release(home, release_id).resolved.get("key") or "")] = None
    keys.pop("", None)
    return list(keys)


@dataclass(frozen=True)
class Release:
    """One release."""

    id: str
    resolved: ResolvedProfile  # as stored, without the parts that a server does not need
    running: Mapping[str, ArmRecord]  # by arm: how each arm that served was run

    def facts(self, arm: str) -> ServerFacts:
        """An arm of the release, as an event names it."""
        engine = self.resolved["engine"]
        return {
            "release": self.id, "profile": self.resolved["profile"], "arm": arm,
            "engine": engine["id"], "version": engine["version"],
        }  # fmt: skip


def identity_of(resolved: ResolvedProfile) -> str:
    """A hash (16 hex digits) of all that a resolved profile puts on a box to serve, and of nothing else."""
    engine = resolved["engine"]
    site = resolved["site"]
    weights = [[item.get("path"), item.get("details")] for item in resolved.get("weights") or []]
    arms: dict[str, list[object]] = {}
    for arm, data in resolved["arms"].items():
        arms[arm] = [data.get("files"), data.get("container"), data.get("environment")]
    parts = {
        "profile": resolved["profile"],
        "engine": [engine.get(name) for name in ("id", "version", "runtime", "home", "image")],
        "site": [site.get(name) for name in ("host", "port", "home", "runtime")],
        "name": resolved["target"]["served_name"],  # of the model in the API
        "weights": weights,
        "arms": arms,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def release_ids(home: str | Path) -> list[str]:
    """The ids of the kept releases, the oldest first."""
    folder = served_folder(home) / "releases"
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.isdigit() and path.is_dir())
    except OSError:
        return []


def read_release(home: str | Path, release_id: str) -> Release:
    """The release with that id. Raises DrafthouseError, which names the file that is missing or wrong."""
    folder = _folder_of(home, release_id)
    resolved: ResolvedProfile = _read_json_file(folder / "resolved.json", _RESOLVED)
    running: dict[str, ArmRecord] = {}
    for path in sorted(folder.glob("running-*.json")):
        running[path.stem.removeprefix("running-")] = _read_json_file(path, _RECORD)
    return Release(release_id, resolved, running)


def _folder_of(home: str | Path, release_id: str) -> Path:
    return served_folder(home) / "releases" / release_id


def _read_json_file(path: Path, shape: Map) -> Any:
    """The content of a file of a release. Raises DrafthouseError if it does not have the ``shape``."""
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


def keep_release(home: str | Path, resolved: ResolvedProfile, arm: str, record: ArmRecord) -> Release:
    """Store the release of an arm that runs, or only the arm's record if a release with the same files is kept.

    Return the release, the newest one with these files. Releases that cannot be read are passed over. Raises
    DrafthouseError.
    """
    wanted = identity_of(resolved)
    with history_lock(home):
        for release_id in reversed(release_ids(home)):
            with contextlib.suppress(DrafthouseError):
                kept = read_release(home, release_id)
                if kept.resolved.get("identity") != wanted:
                    continue
                # The same files may run with another record, such as a rebuilt image.
                if kept.running.get(arm) != record:
                    path = _folder_of(home, release_id) / f"running-{arm}.json"
                    with_room(home, partial(replace_file, path, _json(record)))
                return Release(release_id, kept.resolved, {**kept.running, arm: record})
        new_id = _next_id(home)
        data: ResolvedProfile = {**resolved, "identity": wanted}
        with_room(home, lambda: _write_release(_folder_of(home, new_id), data, arm, record))
        return Release(new_id, data, {arm: record})


def _next_id(home: str | Path) -> str:
    """An id that no release has or had, removed ones included."""
    used_ids = [str(event.get("release") or "") for event in read_history(home)] + release_ids(home)
    highest = max(map(int, filter(str.isdigit, used_ids)), default=0)
    return f"{highest + 1:0{_DIGITS}d}"


def _write_release(folder: Path, data: ResolvedProfile, arm: str, record: ArmRecord) -> None:
    """Write a release. Its folder gets its name when all files are written, so that it is complete or missing."""
    new = folder.with_name(f"{_UNFINISHED}{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    stored = {name: value for name, value in data.items() if name not in _LEFT_OUT}
    replace_file(new / "resolved.json", _json(stored))
    replace_file(new / f"running-{arm}.json", _json(record))
    # No program reads these files: a person can read them, and run them by hand.
    for arm_of_files, rendered in data["arms"].items():
        for file in rendered["files"]:
            replace_file(new / arm_of_files / file["path"], str(file["content"]).encode(), int(file["mode"], 8))
    new.rename(folder)
    sync(folder.parent)


def prune_releases(home: str | Path, keep: int = KEEP) -> list[str]:
    """Remove all but the ``keep`` releases (at least 1) that served last; return the removed ids.

    The present release is always kept. Weights, images and environments stay.
    """
    with history_lock(home):
        newest_first: list[str] = []
        for event in reversed(read_history(home)):
            release_id = str(event.get("release") or "")
            if release_id and event["event"] != REFUSED and release_id not in newest_first:
                newest_first.append(release_id)
        # The first one is the present release, which is kept whatever ``keep`` says. A release without an event is
        # removed: its run was killed before the server was recorded.
        kept_ids = newest_first[: max(1, keep)]
        removed_ids = [release_id for release_id in release_ids(home) if release_id not in kept_ids]
        for release_id in removed_ids:
            folder = _folder_of(home, release_id)
            leaving = folder.with_name(f"{_UNFINISHED}{release_id}.gone")
            shutil.rmtree(leaving, ignore_errors=True)
            folder.rename(leaving)  # first, so that a removal that is cut short leaves no half of a release
            shutil.rmtree(leaving, ignore_errors=True)
        return removed_ids


def earlier_release(home: str | Path) -> str | None:
    """The id of the release to which a rollback returns, the one that served before the last; None if there is none.

    A rollback drops the releases that it leaves, so that a second rollback goes back one more instead of returning.
    """
    order: list[str] = []  # the release that served last is the last one
    for event in read_history(home):
        release_id = str(event.get("release") or "")
        if event["event"] not in (SERVED, ROLLED_BACK) or not release_id:
            continue
        if release_id in order and event["event"] == ROLLED_BACK:
            del order[order.index(release_id) :]
        if release_id in order:
            order.remove(release_id)
        order.append(release_id)
    ids = release_ids(home)
    for release_id in reversed(order[:-1]):
        if release_id in ids:
            return release_id
    return None


def weights_kept(home: str | Path) -> set[str]:
    """The paths of weights that kept releases need, so that pruning spares them.

    The weights of a release that cannot be read are missing; `damaged_releases` reports such a release.
    """
    paths: set[str] = set()
    for release_id in release_ids(home):
        with contextlib.suppress(DrafthouseError):
            for item in read_release(home, release_id).resolved.get("weights") or []:
                paths.add(str(item["path"]))
                if "from_path" in item:
                    paths.add(str(item["from_path"]))
    return paths


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()
