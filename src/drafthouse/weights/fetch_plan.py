"""What a repository of the hub still needs to be in place: looked up, and compared with what lies there; reads only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import DrafthouseError, one_problem
from ..core.pins import is_commit
from ..core.retry import Patience
from ..profiles.pickles import refuse_pickles
from .hub_client import UNRESOLVED, RemoteFile, Snapshot, commit_now, look_up
from .hub_habits import ClientCache
from .integrity import Note, is_as_verified, read_note, stamp
from .layout import Layout, Need, cached, plain

if TYPE_CHECKING:
    from drafthouse.weights.live_head import LiveHead

Bring = Callable[[str, Path, int, "str | None", "str | None", Callable[[int], None]], bool]
_NAMES_MOST = 20  # in an error


@dataclass(frozen=True)
class Wish:
    """One repository and where it is to be.

    ``path``: the folder, or with ``one_file`` the one file, or with ``hub_cache`` the hub's cache. ``bring`` gets a
    file from elsewhere (its path below the folder, the part, size, sha256, git_sha1, tell) and says whether it did,
    verified; ``listing`` tells the revision's files without the hub, where somebody else has weights of this identity.
    ``client_cache``: what the Hub's own client fetched, taken before anything is fetched.
    ``pinned``: the commit that a revision which can move stands for. ``repin``: resolve it anew. ``allow_pickle``:
    patterns of pickled files that may come. ``head``: what its files must hold.
    """

    repo: str
    revision: str
    path: Path
    item: str = ""
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    one_file: bool = False
    hub_cache: bool = False
    offline: bool = False
    verify: bool = False
    pinned: str = ""
    repin: bool = False
    allow_pickle: tuple[str, ...] = ()
    listing: Callable[[Callable[[str], str]], Snapshot | None] | None = None
    bring: Bring | None = None
    client_cache: ClientCache | None = None
    head: LiveHead | None = None

    def identity(self, commit: str) -> str:
        """What the weights are, in one word."""
        details: dict[str, Any] = {"repo": self.repo, "revision": commit}
        if self.allow:
            details["allow"] = list(self.allow)
        if self.ignore:
            details["ignore"] = list(self.ignore)
        return hashlib.sha256(json.dumps(["hub", details], sort_keys=True).encode()).hexdigest()

    def layout(self, commit: str) -> Layout:
        """Where the files of a commit lie."""
        if self.hub_cache:
            return cached(self.path, self.repo, commit)
        return plain(self.path, self.one_file)


@dataclass
class Plan:
    """``to_do``: files that are missing, or there and to be read. ``complete``: the note says all that is true.

    ``moved``: the commit that the branch is now, where it is another than the one that it was pinned as.
    """

    wish: Wish
    snapshot: Snapshot
    layout: Layout
    note: Note
    to_do: list[RemoteFile]
    complete: bool
    moved: str = ""

    @property
    def standing(self) -> int:
        """Bytes of the files that are there as they were verified."""
        return self.snapshot.size - sum(file.size for file in self.to_do)

    def need(self) -> Need:
        """The room that the rest takes; what lies in parts already is not counted again.

        Nor is what becomes a second name of a file of the client's cache.
        """
        size = files = 0
        for file in self.missing():
            if stamp(self.layout.part(file.key)) is None:
                files += 1
                if self._links(file):
                    continue
            size += self._left(file)
        return Need(self.layout.parts, size, files, self.wish.repo)

    def _left(self, file: RemoteFile) -> int:
        """The bytes that its part does not have."""
        part = stamp(self.layout.part(file.key))
        if part is None:
            return file.size
        return max(0, file.size - part[0])

    def _links(self, file: RemoteFile) -> bool:
        cache, place = self.wish.client_cache, self.cached(file)
        return cache is not None and place is not None and cache.links(place, self.layout.parts)

    def missing(self) -> list[RemoteFile]:
        """The files that are not there with their size."""
        missing = []
        for file in self.to_do:
            there = stamp(self.layout.final(file.path, file.key))
            if there is None or there[0] != file.size:
                missing.append(file)
        return missing

    def cached(self, file: RemoteFile) -> str | None:
        """Where a file lies in the client's cache."""
        cache = self.wish.client_cache
        if cache is None:
            return None
        return cache.find(self.wish.repo, self.snapshot.commit, file)

    def to_fetch(self) -> int:
        """The bytes that the client's cache does not have, should its files be right."""
        return sum(self._left(file) for file in self.missing() if not self.cached(file))

    def remarks(self) -> list[str]:
        """What a person is told about the revision."""
        wish, commit = self.wish, self.snapshot.commit
        if wish.revision == UNRESOLVED:
            return [f"{wish.repo} is not pinned in the catalogue; to pin what this run used: revision: {commit}"]
        if is_commit(wish.revision):
            return []
        if not self.moved:
            return [f"{wish.repo} at {wish.revision} is commit {commit}"]
        return [
            f"{wish.repo}: {wish.revision} has moved to {self.moved}; this run keeps {commit}, pinned at first use"
            " (to take the new one: -e repin=true)"
        ]


def make_plan(wish: Wish, patience: Patience | None = None) -> Plan:
    """What there is to do. Raises DrafthouseError."""
    known = _known_commit(wish)
    snapshot = _snapshot(wish, known, patience)
    layout = wish.layout(snapshot.commit)
    note = read_note(layout.place)
    names = [file.path for file in snapshot.files]
    if wish.one_file and wish.path.name not in names:
        raise one_problem(
            "no-weights",
            f"no {wish.path.name} among the selected files of {wish.repo}",
            "the file itself",
            "correct the model's file, or source.hub.allow",
            wish.item,
        )
    layout.check(names)
    refuse_pickles(names, wish.allow_pickle, wish.item or wish.repo)
    to_do = [file for file in snapshot.files if wish.verify or not _stands(file, layout, note)]
    is_noted = note.complete and note.identity == wish.identity(snapshot.commit) and set(note.files) == set(names)
    plan = Plan(wish, snapshot, layout, note, to_do, is_noted and not to_do, _moved(wish, known, patience))
    if wish.offline and not wish.bring:
        _refuse_fetching(plan)
    return plan


def _refuse_fetching(plan: Plan) -> None:
    """Raise DrafthouseError where a file is neither in place nor in the cache of the hub's client."""
    gone = [file.path for file in plan.missing() if not plan.cached(file)]
    if gone:
        raise one_problem(
            "weights-not-offline",
            f"offline, and {plan.wish.repo} is missing {', '.join(gone[:_NAMES_MOST])}",
            "all files of the revision",
            "run once with access to the Hugging Face hub, or copy them from another machine",
            str(plan.layout.folder),
        )


def _known_commit(wish: Wish) -> str:
    """The commit where the wish or an earlier run names it, otherwise ''.

    What can move was resolved once and stays what it was, until it is pinned anew.
    """
    if is_commit(wish.revision):
        return wish.revision
    if wish.repin and not wish.offline:
        return ""
    if wish.pinned or wish.hub_cache:
        return wish.pinned
    note = read_note(wish.path)
    recorded = note.commit or ""
    if note.repo != wish.repo or note.asked != wish.revision or not is_commit(recorded):
        return ""
    return recorded


def _moved(wish: Wish, known: str, patience: Patience | None) -> str:
    """The commit that a branch is now where that is another one; '' also where the hub does not say.

    ``unresolved`` names no branch, so nothing is asked: the weights are there, and a hub out of reach is no matter.
    """
    if not known or wish.revision in (known, UNRESOLVED) or wish.offline:
        return ""
    try:
        now = commit_now(wish.repo, wish.revision, wish.token, wish.endpoint, replace(patience or Patience(), tries=1))
    except DrafthouseError:
        return ""
    if now == known:
        return ""
    return now


def _snapshot(wish: Wish, commit: str, patience: Patience | None) -> Snapshot:
    """The files of the revision: from the note of what was verified, from elsewhere, or from the hub."""
    if commit:
        note = read_note(wish.layout(commit).place)
        if note.complete and note.files and note.identity == wish.identity(commit):
            return Snapshot(wish.repo, wish.revision, commit, tuple(_from_note(wish, note, commit)))
    listed = wish.listing(wish.identity) if wish.listing else None
    if listed and commit in ("", listed.commit):
        files = tuple(_with_url(wish, file, listed.commit) for file in listed.files)
        return Snapshot(wish.repo, wish.revision, listed.commit, files)
    if wish.offline:
        raise one_problem(
            "weights-not-offline",
            f"offline, and nothing verified as {wish.repo} at {wish.revision} in {wish.path}",
            "weights that an earlier run downloaded and verified",
            "run once online (existing files are verified, not downloaded), or copy them from another machine",
            wish.item or wish.repo,
        )
    return look_up(
        wish.repo,
        commit or wish.revision,
        allow=wish.allow,
        ignore=wish.ignore,
        token=wish.token,
        endpoint=wish.endpoint,
        patience=patience,
    )


def _from_note(wish: Wish, note: Note, commit: str) -> Iterator[RemoteFile]:
    for name, known in note.files.items():
        yield _with_url(wish, RemoteFile(name, known.size, known.sha256, known.git_sha1), commit)


def _with_url(wish: Wish, file: RemoteFile, commit: str) -> RemoteFile:
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 (only in the box's environment)

    url = file.url or hf_hub_url(wish.repo, file.path, revision=commit, endpoint=wish.endpoint)
    return replace(file, url=url)


def _stands(file: RemoteFile, layout: Layout, note: Note) -> bool:
    """Whether a file is there as it was verified."""
    known = note.files.get(file.path)
    right = known is not None and known.key == file.key
    return right and is_as_verified(layout.final(file.path, file.key), known) and layout.linked(file.path, file.key)
