"""Compare a revision on the Hugging Face hub with the files on disk, and plan what to download. Writes nothing.

The note (`integrity.Note`), a JSON file beside the weights, records which files were verified. The client is
huggingface_hub, the hub's own Python client; its cache may hold some files already. A part is a partial file.
"""

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
from .integrity import Note, is_as_verified, read_note, stamp_of
from .layout import Layout, Need, cache_layout, folder_layout

if TYPE_CHECKING:
    from drafthouse.weights.live_head import ExpectedHead

# Fills the part at the path with a file of the revision, and tells the bytes added; True once the hash is verified.
FillPart = Callable[[RemoteFile, Path, Callable[[int], None]], bool]
_MAX_NAMES = 20  # file names listed in an error


@dataclass(frozen=True)
class Wish:
    """One hub repository that is wanted, and where to put its files.

    ``listing`` and ``fill_part`` use a nearby folder (`nearby_copies.py`) instead of the hub; None without one.
    """

    repo: str  # ORG/NAME
    revision: str  # commit, branch, or ``unresolved`` for the default branch
    path: Path  # the folder; with ``one_file`` the file; with ``hub_cache`` the folder of a Hugging Face cache
    item: str = ""  # name in messages; '' for the repository's
    allow: tuple[str, ...] = ()  # patterns of file names, all if empty
    ignore: tuple[str, ...] = ()  # patterns of file names to leave out
    token: str | None = field(default=None, repr=False)  # None: the hub is asked without one
    endpoint: str | None = None  # URL of the hub; None for huggingface_hub's default
    one_file: bool = False  # one file in a folder that holds other weights too
    hub_cache: bool = False  # store the files as huggingface_hub's cache does
    offline: bool = False  # do not ask the hub; DrafthouseError if something is missing
    verify: bool = False  # hash files again that are unchanged since they were verified
    pinned: str = ""  # the commit that the branch was resolved to earlier; '' for none
    repin: bool = False  # resolve the branch again
    allow_pickle: tuple[str, ...] = ()  # patterns of pickled files that may be installed
    # Called with the function `identity`; the files of the revision, or None if the folder has no list of them.
    listing: Callable[[Callable[[str], str]], Snapshot | None] | None = None
    fill_part: FillPart | None = None
    client_cache: ClientCache | None = None  # files in it are not downloaded
    head: ExpectedHead | None = None  # the built-in draft head that the files must contain

    def identity(self, commit: str) -> str:
        """Hex hash that identifies the weights: repository, commit and patterns."""
        details: dict[str, Any] = {"repo": self.repo, "revision": commit}
        if self.allow:
            details["allow"] = list(self.allow)
        if self.ignore:
            details["ignore"] = list(self.ignore)
        return hashlib.sha256(json.dumps(["hub", details], sort_keys=True).encode()).hexdigest()

    def layout(self, commit: str) -> Layout:
        """Layout of the files of a commit on disk."""
        if self.hub_cache:
            return cache_layout(self.path, self.repo, commit)
        return folder_layout(self.path, self.one_file)


@dataclass
class Plan:
    """Work that a revision needs."""

    wish: Wish
    snapshot: Snapshot  # the wanted files of the revision
    layout: Layout
    note: Note  # as an earlier run left it; empty without one
    to_do: list[RemoteFile]  # files to download or to hash
    complete: bool  # nothing to do, and the note is up to date
    moved: str = ""  # commit that the branch has moved to; '' if it has not, or if that is not known

    @property
    def verified_bytes(self) -> int:
        """Total size in bytes of the files that are in place and unchanged since they were verified."""
        return self.snapshot.size - sum(file.size for file in self.to_do)

    def need(self) -> Need:
        """Disk space that the missing files need: bytes that their parts lack, and an inode for each new part.

        A file that becomes a hard link to the client's cache needs an inode and no bytes.
        """
        size = files = 0
        for file in self.missing():
            if stamp_of(self.layout.part(file.key)) is None:
                files += 1
                if self._links(file):
                    continue
            size += self._left(file)
        return Need(self.layout.parts, size, files, self.wish.repo)

    def _left(self, file: RemoteFile) -> int:
        """Bytes of a file that its part does not have yet."""
        part_stamp = stamp_of(self.layout.part(file.key))
        if part_stamp is None:
            return file.size
        part_size, _, _ = part_stamp
        return max(0, file.size - part_size)

    def _links(self, file: RemoteFile) -> bool:
        """True if the file can become a hard link to the client's cache."""
        cache = self.wish.client_cache
        cached_path = self.path_in_client_cache(file)
        return cache is not None and cached_path is not None and cache.links(cached_path, self.layout.parts)

    def missing(self) -> list[RemoteFile]:
        """Files that do not exist or have another size."""
        missing = []
        for file in self.to_do:
            file_stamp = stamp_of(self.layout.final(file.path, file.key))
            if file_stamp is None or file_stamp[0] != file.size:
                missing.append(file)
        return missing

    def path_in_client_cache(self, file: RemoteFile) -> str | None:
        """Path of a file relative to the client's cache; None if it is not there."""
        cache = self.wish.client_cache
        if cache is None:
            return None
        return cache.find(self.wish.repo, self.snapshot.commit, file)

    def to_fetch(self) -> int:
        """Bytes to download, if the files in the client's cache turn out to be correct; a nearby folder is ignored."""
        return sum(self._left(file) for file in self.missing() if not self.path_in_client_cache(file))

    def remarks(self) -> list[str]:
        """Lines for the user about the revision and its commit."""
        wish = self.wish
        commit = self.snapshot.commit
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
    """Look up the revision and compare it with the disk. Raises DrafthouseError.

    ``patience``: tries and pauses for requests to the hub; None for the defaults.
    """
    pinned_commit = _pinned_commit(wish)
    snapshot = _snapshot(wish, pinned_commit, patience)
    layout = wish.layout(snapshot.commit)
    note = read_note(layout.path)
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
    to_do = [file for file in snapshot.files if wish.verify or not _is_in_place(file, layout, note)]
    is_recorded = note.complete and note.identity == wish.identity(snapshot.commit) and set(note.files) == set(names)
    plan = Plan(
        wish=wish,
        snapshot=snapshot,
        layout=layout,
        note=note,
        to_do=to_do,
        complete=is_recorded and not to_do,
        moved=_moved(wish, pinned_commit, patience),
    )
    # With a nearby folder, it shows only during the transfer which files are there.
    if wish.offline and not wish.fill_part:
        _require_all_files(plan)
    return plan


def _require_all_files(plan: Plan) -> None:
    """Raise DrafthouseError if a file is neither in place nor in the client's cache."""
    missing = [file.path for file in plan.missing() if not plan.path_in_client_cache(file)]
    if missing:
        raise one_problem(
            "weights-not-offline",
            f"offline, and {plan.wish.repo} is missing {', '.join(missing[:_MAX_NAMES])}",
            "all files of the revision",
            "run once with access to the Hugging Face hub, or copy them from another machine",
            str(plan.layout.folder),
        )


def _pinned_commit(wish: Wish) -> str:
    """Commit to use without asking the hub what the branch points to; '' to ask.

    A branch is resolved on the first run and keeps that commit until ``repin`` is given. In this order:
    the revision, if it is a commit; '' with ``repin``, unless offline; ``pinned`` of the wish; '' for a Hugging Face
    cache; the commit in the note, if it was made for the same repository and revision; ''.
    """
    if is_commit(wish.revision):
        return wish.revision
    if wish.repin and not wish.offline:
        return ""
    # In a Hugging Face cache each commit has its own note, so none can be found before the commit is known.
    if wish.pinned or wish.hub_cache:
        return wish.pinned
    note = read_note(wish.path)
    recorded = note.commit or ""
    if note.repo != wish.repo or note.asked != wish.revision or not is_commit(recorded):
        return ""
    return recorded


def _moved(wish: Wish, pinned_commit: str, patience: Patience | None) -> str:
    """Current commit of the branch if it differs from the pinned one; '' if not, or if it is not known.

    It is not known without a pinned commit, offline, if the hub does not answer the one request, or for the revision
    ``unresolved``, which names no branch.
    """
    if not pinned_commit or wish.revision in (pinned_commit, UNRESOLVED) or wish.offline:
        return ""
    try:
        now = commit_now(wish.repo, wish.revision, wish.token, wish.endpoint, replace(patience or Patience(), tries=1))
    except DrafthouseError:
        return ""
    if now == pinned_commit:
        return ""
    return now


def _snapshot(wish: Wish, commit: str, patience: Patience | None) -> Snapshot:
    """Files of the revision, from the first of these that has them.

    The note of a complete download of ``commit``; the nearby folder, if its commit is ``commit`` or that is ''; the
    hub, unless offline. Raises DrafthouseError if none has them.
    """
    if commit:
        note = read_note(wish.layout(commit).path)
        if note.complete and note.files and note.identity == wish.identity(commit):
            return Snapshot(wish.repo, wish.revision, commit, tuple(_files_of_note(wish, note, commit)))
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


def _files_of_note(wish: Wish, note: Note, commit: str) -> Iterator[RemoteFile]:
    """Files that a note records, with their URLs at the hub."""
    for name, entry in note.files.items():
        yield _with_url(wish, RemoteFile(name, entry.size, entry.sha256, entry.git_sha1), commit)


def _with_url(wish: Wish, file: RemoteFile, commit: str) -> RemoteFile:
    """The file with the URL that it has at the hub; a URL that is set stays."""
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 (only in the box's environment)

    url = file.url or hf_hub_url(wish.repo, file.path, revision=commit, endpoint=wish.endpoint)
    return replace(file, url=url)


def _is_in_place(file: RemoteFile, layout: Layout, note: Note) -> bool:
    """True if a file is in place, is unchanged since it was verified, and was verified against the wanted hash."""
    entry = note.files.get(file.path)
    same_hash = entry is not None and entry.key == file.key
    return same_hash and is_as_verified(layout.final(file.path, file.key), entry) and layout.linked(file.path, file.key)
