"""Revisions of the hub, in place and verified: what is there, what is missing, then both at once for all of them.

A file gets its name only after its bytes were hashed and lie on the disk: whatever kills this, at any moment, leaves
verified files and ``.part`` files that the next run continues.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import sync
from ..core.format import shown_bytes
from .download import Limits, Shared, Stopped, disk_trouble, fetch
from .fetch_plan import Bring, Plan, Wish, make_plan
from .hub_client import UNRESOLVED, RemoteFile
from .integrity import EndedError, Note, digest, is_as_verified, stamp, verified, write_note
from .layout import check_room, held, sweep, write_ref
from .live_head import check_at_hub
from .snapshot_progress import Counts, telling

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell

__all__ = ["Settings", "Wish", "place"]

_NOTE_EVERY_S = 2.0
_ASK_TRIES = 4  # before the first byte: a network that is not there should say so soon


@dataclass(frozen=True)
class Settings:
    """``streams`` downloads at once over all repositories, ``hashers`` files hashed at once beside them.

    ``margin``: bytes of the disk that stay free. ``hash_apart``: hash when all has been transferred, not meanwhile;
    for measurements.
    """

    limits: Limits = field(default_factory=Limits)
    streams: int = 8
    hashers: int = 4
    margin: int = 256 << 20
    hash_apart: bool = False


class Placed(TypedDict):
    """What was done for a wish: the repository's commit, sizes in bytes, times in seconds, ``rate`` in bytes/s."""

    commit: str
    path: str
    changed: bool
    bytes: int
    files: int
    bytes_fetched: int
    bytes_brought: int
    bytes_skipped: int
    seconds: float
    transfer_seconds: float
    hash_seconds: float
    rate: int
    notes: list[str]


def place(
    wishes: Sequence[Wish], tell: Tell, settings: Settings | None = None, check_mode: bool = False
) -> list[Placed]:
    """Put every wish in place; return for each what was done, in check mode what would be.

    Raises DrafthouseError: every problem that is found before the first byte, or
    the first one after it.
    """
    given = settings or Settings()
    settings = replace(given, limits=replace(given.limits, shared=Shared()))
    jobs = [_Job(wish, settings) for wish in wishes]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        _all_of([pool.submit(job.look) for job in jobs])
    busy = [job for job in jobs if not job.plan.complete]
    check_room([job.plan.need() for job in busy], settings.margin)
    if check_mode:
        return [job.would() for job in jobs]
    with contextlib.ExitStack() as stack:
        for job in busy:
            stack.enter_context(held(job.plan.layout))
            job.begin()
        with telling([job.counts for job in busy], tell):
            try:
                _work(busy, settings)
            except BaseException:
                for job in busy:
                    with contextlib.suppress(DrafthouseError):  # what went wrong first is what is told
                        job.save()
                raise
        for job in busy:
            job.end()
    return [job.result() for job in jobs]


def _all_of(futures: Sequence[Future[Any]], stop: threading.Event | None = None) -> None:
    """Wait for all; with ``stop`` the first that fails ends the others. Raises DrafthouseError with what they found."""
    problems: list[Problem] = []
    for future in as_completed(futures):
        try:
            future.result()
        except (Stopped, EndedError):
            continue
        except DrafthouseError as error:
            problems += [problem for problem in error.problems if problem not in problems]
        except BaseException:
            if stop:
                stop.set()
            raise
        if problems and stop:
            stop.set()
    if problems:
        raise DrafthouseError(problems)


def _work(jobs: Sequence[_Job], settings: Settings) -> None:
    """Fetch and hash all files of all jobs, the largest first: the last ones to end are small.

    A file that waits for its hashing keeps no stream from the next one.
    """
    slots = _Slots(threading.Semaphore(settings.streams), threading.Semaphore(settings.hashers))
    tasks = [(job, files) for job in jobs for files in job.by_content()]
    tasks.sort(key=lambda task: -task[1][0].size)
    stop = settings.limits.shared.stop
    with ThreadPoolExecutor(settings.streams + settings.hashers) as pool:
        if settings.hash_apart:
            _all_of([pool.submit(job.fetch_only, files[0], slots) for job, files in tasks], stop)
        _all_of([pool.submit(job.bring_all, files, slots) for job, files in tasks], stop)


@dataclass(frozen=True)
class _Slots:
    streams: threading.Semaphore
    hashers: threading.Semaphore


class _Job:
    """One repository on its way."""

    plan: Plan

    def __init__(self, wish: Wish, settings: Settings) -> None:
        self.wish, self.notes = wish, list[str]()
        self.limits = replace(settings.limits, token=wish.token, say=self.notes.append)
        self.counts = Counts(wish.item or wish.repo)
        self.cache = wish.client_cache.place(self.notes) if wish.client_cache else None
        self.from_cache, self.looked_up = 0, set[str]()
        self.lock = threading.Lock()
        self.saved = 0.0
        self.begun = self.ended = time.monotonic()

    def look(self) -> None:
        """Find out what there is to do."""
        patience = self.limits.patience
        self.plan = make_plan(self.wish, replace(patience, tries=min(patience.tries, _ASK_TRIES)))
        self.note = self.plan.note
        self.notes += self.plan.remarks()
        if self.wish.head:
            self.notes += check_at_hub(self.wish.head, self.plan, self.limits)
        self.counts.total, self.counts.standing = self.plan.snapshot.size, self.plan.standing
        self.ended = time.monotonic()

    def by_content(self) -> list[list[RemoteFile]]:
        """The files to do, those of the same bytes together: they are fetched once."""
        groups: dict[str, list[RemoteFile]] = {}
        for file in self.plan.to_do:
            groups.setdefault(file.key, []).append(file)
        return list(groups.values())

    def begin(self) -> None:
        """Sweep, and record that what lies here is not whole any more."""
        plan, commit = self.plan, self.plan.snapshot.commit
        swept = sweep(plan.layout, [file.key for file in plan.to_do])
        if swept:
            self.notes.append(f"removed {shown_bytes(swept)} of unfinished downloads in {plan.layout.folder}")
        wanted = {file.path for file in plan.snapshot.files}
        standing = wanted - {file.path for file in plan.to_do}
        kept = {name: known for name, known in plan.note.files.items() if name in standing}
        before = dict(plan.note.left_over)
        if plan.note.commit != commit:
            before |= plan.note.files
        self.note = Note(
            identity=self.wish.identity(commit),
            repo=self.wish.repo,
            asked=self.wish.revision,
            commit=commit,
            files=kept,
            left_over={name: known for name, known in before.items() if name not in wanted},
        )
        if plan.note.complete:
            self.save()

    # --- one file ---------------------------------------------------------------------------------------------

    def bring_all(self, files: Sequence[RemoteFile], slots: _Slots) -> None:
        """Make files of the same bytes be in place, verified. Raises DrafthouseError, Stopped, EndedError."""
        for number, file in enumerate(files):
            final, part = self._final(file), self.plan.layout.part(file.key)
            if number and stamp(final) is None:
                with disk_trouble(part):
                    shutil.copyfile(self._final(files[0]), part, follow_symlinks=False)
            self._bring(file, final, part, slots)

    def _bring(self, file: RemoteFile, final: Path, part: Path, slots: _Slots) -> None:
        aside = final.with_name(f"{final.name}.wrong")
        there = stamp(final)
        if there:
            found = f"(of {there[0]:,} bytes)"
            if there[0] == file.size:
                found = self._hash(file, final, slots)
            if found == file.key:
                with self.lock:
                    self.counts.read_right += file.size
                self.counts.lies(file.path, file.size)
                return self._keep(file, final)
            known = self.plan.note.files.get(file.path)
            earlier = known is not None and known.key != file.key and is_as_verified(final, known)
            with disk_trouble(final):
                final.replace(aside)
            if not earlier:
                self.notes.append(
                    f"{file.path} had {_kind(file)} {found} instead of {file.key}: moved aside, fetched again"
                )
        wrong: list[str] = []
        for _ in range(2):
            found = file.key
            if not self.fetch_only(file, slots):
                found = self._hash(file, part, slots)
            with disk_trouble(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                if found == file.key:
                    sync(part)
                    part.replace(final)
                    aside.unlink(missing_ok=True)
                    return self._keep(file, final)
                part.replace(aside)
            wrong.append(found)
            if len(wrong) == 1:
                self.notes.append(f"{file.path} came with {_kind(file)} {found} instead of {file.key}: fetched again")
            self.counts.lies(file.path, 0)
        raise one_problem(
            "weights-checksum",
            f"{file.path} with {_kind(file)} {' and, fetched again, '.join(wrong)}",
            f"{_kind(file)} {file.key}, as {self.wish.repo} at {self.plan.snapshot.commit} has it",
            f"find out what alters the data in transit (a proxy, a mirror); the download is in {aside.name}",
            str(final),
        )

    def fetch_only(self, file: RemoteFile, slots: _Slots) -> bool:
        """Make the part hold all of a file that is not there; return whether it is verified already."""
        part = self.plan.layout.part(file.key)
        there = stamp(self._final(file))
        if there and there[0] == file.size:
            return False
        with slots.streams, self.counts.transferring():
            self.counts.lies(file.path, part_size(part))
            if self._from_cache(file, part) or self._from_elsewhere(file, part):
                return True
            if self.wish.offline:
                raise one_problem(
                    "weights-not-offline",
                    f"offline, and {file.path} of {self.wish.repo} is not there, or not with the right bytes",
                    f"{_kind(file)} {file.key}",
                    "run once with access to the Hugging Face hub, or copy it from another machine",
                    str(self._final(file)),
                )
            self.counts.came(fetch(file, part, self.limits, self.counts.adder(file.path)))
            return False

    def _from_cache(self, file: RemoteFile, part: Path) -> bool:
        """Whether the file came from the cache of the hub's client, which is asked once for it."""
        where = self.plan.cached(file)
        if self.cache is None or where is None or file.key in self.looked_up:
            return False
        self.looked_up.add(file.key)
        brought = self._brought(self.cache.bring, where, file, part)
        if brought:
            with self.lock:
                self.from_cache += file.size
        return brought

    def _from_elsewhere(self, file: RemoteFile, part: Path) -> bool:
        return self.wish.bring is not None and self._brought(self.wish.bring, file.path, file, part)

    def _brought(self, bring: Bring, name: str, file: RemoteFile, part: Path) -> bool:
        lay, add = part_size(part), self.counts.adder(file.path)
        brought = bring(name, part, file.size, file.sha256, file.git_sha1, add)
        self.counts.lies(file.path, part_size(part))
        if brought:
            with self.lock:
                self.counts.brought += file.size - lay
        return brought

    def _final(self, file: RemoteFile) -> Path:
        return self.plan.layout.final(file.path, file.key)

    def _hash(self, file: RemoteFile, path: Path, slots: _Slots) -> str:
        with slots.hashers, disk_trouble(path):
            begun = time.monotonic()
            found = digest(path, git=file.sha256 is None, tell=self.counts.hashed, stop=self.limits.shared.stop)
            with self.lock:
                self.counts.hash_seconds += time.monotonic() - begun
            return found

    def _keep(self, file: RemoteFile, final: Path) -> None:
        """Record a verified file."""
        with disk_trouble(final):
            self.plan.layout.link(file.path, file.key)
            entry = verified(final, file.sha256, file.git_sha1)
        with self.lock:
            self.note.files[file.path] = entry
        if time.monotonic() - self.saved > _NOTE_EVERY_S:
            self.save()

    # --- the whole --------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write down what was verified so far."""
        with self.lock, disk_trouble(self.plan.layout.place):
            self.saved = time.monotonic()
            write_note(self.plan.layout.place, self.note, self.plan.layout.parts)

    def end(self) -> None:
        """Write down that all is there, and remove what only an earlier revision of ours had."""
        layout, commit = self.plan.layout, self.plan.snapshot.commit
        for name, known in self.note.left_over.items():
            if layout.blobs is None and is_as_verified(layout.folder / name, known):
                with contextlib.suppress(OSError):
                    (layout.folder / name).unlink()
        self.note.left_over = {}
        if self.wish.client_cache and self.from_cache:
            came, there = shown_bytes(self.from_cache), self.wish.client_cache.folder
            self.notes.append(f"{came} of {self.wish.repo} were found in {there} and verified")
        with disk_trouble(layout.folder):
            for folder in {self._final(file).parent for file in self.plan.to_do}:
                sync(folder)
            branch = "main" if self.wish.revision == UNRESOLVED else self.wish.revision
            write_ref(layout, branch, commit)
        self.note.complete = True
        self.save()
        self.ended = time.monotonic()

    def would(self) -> Placed:
        """What would be done."""
        plan, size = self.plan, self.plan.to_fetch()
        there = len(plan.to_do) - len(plan.missing())
        if size:
            self.notes.append(f"would fetch {shown_bytes(size)} of {self.wish.repo} into {plan.layout.folder}")
        if there:
            self.notes.append(f"would read {there} files of {self.wish.repo} to verify them")
        return {**self.result(), "changed": not plan.complete, "bytes_fetched": size}

    def result(self) -> Placed:
        """What was done."""
        plan, counts = self.plan, self.counts
        moved, seconds, rate = counts.fetched + counts.brought, counts.transfer_seconds, 0
        if seconds:
            rate = round(moved / seconds)
        path = plan.layout.place if self.wish.one_file else plan.layout.folder
        return {
            "commit": plan.snapshot.commit,
            "path": str(path),
            "changed": moved > 0,
            "bytes": plan.snapshot.size,
            "files": len(plan.snapshot.files),
            "bytes_fetched": counts.fetched,
            "bytes_brought": counts.brought,
            "bytes_skipped": counts.standing + counts.read_right,
            "seconds": round(self.ended - self.begun, 3),
            "transfer_seconds": round(seconds, 3),
            "hash_seconds": round(counts.hash_seconds, 3),
            "rate": rate,
            "notes": list(self.notes),
        }


def part_size(part: Path) -> int:
    """The bytes that lie in a part."""
    found = stamp(part)
    if found is None:
        return 0
    return found[0]


def _kind(file: RemoteFile) -> str:
    return "sha256" if file.sha256 else "git blob id"
