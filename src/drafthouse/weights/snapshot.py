"""Download revisions from the Hugging Face hub and verify them: plan all repositories first, then transfer all files.

A file gets its final name only after it was hashed and flushed to disk. A run that is killed at any moment leaves
verified files, and unfinished ``.part`` files ("parts") that the next run continues.
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
from .fetch_plan import FillPart, Plan, Wish, make_plan
from .hub_client import UNRESOLVED, RemoteFile
from .integrity import EndedError, Note, digest, is_as_verified, note_entry, stamp_of, write_note
from .layout import check_room, locked_parts, remove_stale_parts, write_ref
from .live_head import check_at_hub
from .snapshot_progress import Counts, reporting

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell

__all__ = ["Settings", "Wish", "place_snapshots"]

_NOTE_EVERY_S = 2.0  # between two writes of the note
_LOOKUP_TRIES = 4  # fewer than for a transfer, so that a missing network is reported soon


@dataclass(frozen=True)
class Settings:
    """Parallelism, over all repositories together, and limits."""

    limits: Limits = field(default_factory=Limits)
    streams: int = 8  # downloads at once
    hashers: int = 4  # hashing threads at once
    margin: int = 256 << 20  # bytes to keep free on the disk
    hash_apart: bool = False  # hash after all transfers instead of during them, for measurements


class Placed(TypedDict):
    """Result for a wish."""

    commit: str
    path: str
    changed: bool
    bytes: int  # of all files of the revision
    files: int
    bytes_fetched: int  # downloaded from the hub
    bytes_brought: int  # copied from a folder of this machine
    bytes_skipped: int  # in place before
    seconds: float
    transfer_seconds: float
    hash_seconds: float  # summed over all threads
    rate: int  # bytes/s of the transfer
    notes: list[str]  # lines for the user


def place_snapshots(
    wishes: Sequence[Wish], tell: Tell, settings: Settings | None = None, check_mode: bool = False
) -> list[Placed]:
    """Put the files of every wish in place; return one result for each. Check mode only reports what would change.

    Raises DrafthouseError with all problems found before the first download, or those that end the transfer.
    """
    chosen = settings or Settings()
    settings = replace(chosen, limits=replace(chosen.limits, shared=Shared()))
    jobs = [_Job(wish, settings) for wish in wishes]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        _wait_for_all([pool.submit(job.plan_work) for job in jobs])
    busy = [job for job in jobs if not job.plan.complete]
    check_room([job.plan.need() for job in busy], settings.margin)
    if check_mode:
        return [job.check_mode_result() for job in jobs]
    with contextlib.ExitStack() as stack:
        for job in busy:
            stack.enter_context(locked_parts(job.plan.layout))
            job.start()
        with reporting([job.counts for job in busy], tell):
            try:
                _transfer_files(busy, settings)
            except BaseException:
                for job in busy:
                    with contextlib.suppress(DrafthouseError):  # keep the first error, which is raised below
                        job.save()
                raise
        for job in busy:
            job.end()
    return [job.result() for job in jobs]


def _wait_for_all(futures: Sequence[Future[Any]], stop: threading.Event | None = None) -> None:
    """Wait for all futures and raise DrafthouseError with their problems; set ``stop`` when the first one fails."""
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


def _transfer_files(jobs: Sequence[_Job], settings: Settings) -> None:
    """Download and hash all files of all jobs, the largest first, so that no large file is left for the end.

    A file that waits to be hashed does not occupy a download stream.
    """
    slots = _Slots(threading.Semaphore(settings.streams), threading.Semaphore(settings.hashers))
    tasks = [(job, files) for job in jobs for files in job.by_content()]
    tasks.sort(key=lambda task: -task[1][0].size)
    stop = settings.limits.shared.stop
    with ThreadPoolExecutor(settings.streams + settings.hashers) as pool:
        if settings.hash_apart:
            _wait_for_all([pool.submit(job.fetch_only, files[0], slots) for job, files in tasks], stop)
        _wait_for_all([pool.submit(job.put_files, files, slots) for job, files in tasks], stop)


@dataclass(frozen=True)
class _Slots:  # limits on parallel work over all jobs
    streams: threading.Semaphore
    hashers: threading.Semaphore


class _Job:
    """Download of one repository: its plan, its counters, and the note that is written as files are verified."""

    plan: Plan

    def __init__(self, wish: Wish, settings: Settings) -> None:
        self.wish, self.notes = wish, list[str]()
        self.limits = replace(settings.limits, token=wish.token, say=self.notes.append)
        self.counts = Counts(wish.item or wish.repo)
        self.cache = wish.client_cache.as_nearby_folder(self.notes) if wish.client_cache else None
        self.cache_bytes, self.tried_in_cache = 0, set[str]()
        self.lock = threading.Lock()
        self.saved_at = 0.0
        self.started = self.ended = time.monotonic()

    def plan_work(self) -> None:
        """Look up the revision and plan the work."""
        patience = self.limits.patience
        self.plan = make_plan(self.wish, replace(patience, tries=min(patience.tries, _LOOKUP_TRIES)))
        self.note = self.plan.note
        self.notes += self.plan.remarks()
        if self.wish.head:
            self.notes += check_at_hub(self.wish.head, self.plan, self.limits)
        self.counts.total, self.counts.verified_bytes = self.plan.snapshot.size, self.plan.verified_bytes
        self.ended = time.monotonic()

    def by_content(self) -> list[list[RemoteFile]]:
        """Group the files to do by hash: files with the same content are downloaded once."""
        groups: dict[str, list[RemoteFile]] = {}
        for file in self.plan.to_do:
            groups.setdefault(file.key, []).append(file)
        return list(groups.values())

    def start(self) -> None:
        """Remove other unfinished files and mark the revision as incomplete in the note."""
        plan, commit = self.plan, self.plan.snapshot.commit
        swept_bytes = remove_stale_parts(plan.layout, [file.key for file in plan.to_do])
        if swept_bytes:
            self.notes.append(f"removed {shown_bytes(swept_bytes)} of unfinished downloads in {plan.layout.folder}")
        wanted = {file.path for file in plan.snapshot.files}
        verified_names = wanted - {file.path for file in plan.to_do}
        kept = {name: entry for name, entry in plan.note.files.items() if name in verified_names}
        earlier_files = dict(plan.note.left_over)
        if plan.note.commit != commit:
            earlier_files |= plan.note.files
        self.note = Note(
            identity=self.wish.identity(commit),
            repo=self.wish.repo,
            asked=self.wish.revision,
            commit=commit,
            files=kept,
            left_over={name: entry for name, entry in earlier_files.items() if name not in wanted},
        )
        if plan.note.complete:
            self.save()

    # --- one file ---------------------------------------------------------------------------------------------

    def put_files(self, files: Sequence[RemoteFile], slots: _Slots) -> None:
        """Put files with the same content in place, verified. Raises DrafthouseError, Stopped and EndedError."""
        for index, file in enumerate(files):
            final, part = self._final(file), self.plan.layout.part(file.key)
            # The first file has been verified: the others are copies of it, not further downloads.
            if index and stamp_of(final) is None:
                with disk_trouble(part):
                    shutil.copyfile(self._final(files[0]), part, follow_symlinks=False)
            self._put_file(file, final, part, slots)

    def _put_file(self, file: RemoteFile, final: Path, part: Path, slots: _Slots) -> None:
        """Verify or download one file; a wrong file is moved aside and downloaded once more."""
        wrong_file = final.with_name(f"{final.name}.wrong")
        file_stamp = stamp_of(final)
        if file_stamp:
            actual = f"(of {file_stamp[0]:,} bytes)"
            if file_stamp[0] == file.size:
                actual = self._hash(file, final, slots)
            if actual == file.key:
                with self.lock:
                    self.counts.rehashed_bytes += file.size
                self.counts.set_size(file.path, file.size)
                return self._record_verified(file, final)
            entry = self.plan.note.files.get(file.path)
            # A verified file of an earlier revision is expected to differ, and needs no remark.
            is_earlier_revision = entry is not None and entry.key != file.key and is_as_verified(final, entry)
            with disk_trouble(final):
                final.replace(wrong_file)
            if not is_earlier_revision:
                self.notes.append(
                    f"{file.path} had {_kind(file)} {actual} instead of {file.key}: moved aside, fetched again"
                )
        wrong_hashes: list[str] = []
        # The second download tells data that was altered once from a file that always comes wrong.
        for _ in range(2):
            actual = file.key
            if not self.fetch_only(file, slots):
                actual = self._hash(file, part, slots)
            with disk_trouble(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                if actual == file.key:
                    sync(part)
                    part.replace(final)
                    wrong_file.unlink(missing_ok=True)
                    return self._record_verified(file, final)
                part.replace(wrong_file)
            wrong_hashes.append(actual)
            if len(wrong_hashes) == 1:
                self.notes.append(f"{file.path} came with {_kind(file)} {actual} instead of {file.key}: fetched again")
            self.counts.set_size(file.path, 0)
        raise one_problem(
            "weights-checksum",
            f"{file.path} with {_kind(file)} {' and, fetched again, '.join(wrong_hashes)}",
            f"{_kind(file)} {file.key}, as {self.wish.repo} at {self.plan.snapshot.commit} has it",
            f"find out what alters the data in transit (a proxy, a mirror); the download is in {wrong_file.name}",
            str(final),
        )

    def fetch_only(self, file: RemoteFile, slots: _Slots) -> bool:
        """Fill the part of a missing file; return False if its hash must still be verified."""
        part = self.plan.layout.part(file.key)
        file_stamp = stamp_of(self._final(file))
        if file_stamp and file_stamp[0] == file.size:
            return False
        with slots.streams, self.counts.transferring():
            self.counts.set_size(file.path, part_size(part))
            if self._copy_from_cache(file, part) or self._copy_from_nearby(file, part):  # both verify the hash
                return True
            if self.wish.offline:
                raise one_problem(
                    "weights-not-offline",
                    f"offline, and {file.path} of {self.wish.repo} is not there, or not with the right bytes",
                    f"{_kind(file)} {file.key}",
                    "run once with access to the Hugging Face hub, or copy it from another machine",
                    str(self._final(file)),
                )
            self.counts.add_fetched(fetch(file, part, self.limits, self.counts.adder(file.path)))
            return False

    def _copy_from_cache(self, file: RemoteFile, part: Path) -> bool:
        """Copy the file from the cache of huggingface_hub; return True on success. Each hash is tried once."""
        cached_path = self.plan.path_in_client_cache(file)
        if self.cache is None or cached_path is None or file.key in self.tried_in_cache:
            return False
        self.tried_in_cache.add(file.key)
        is_copied = self._copy(self.cache.fill_part, cached_path, file, part)
        if is_copied:
            with self.lock:
                self.cache_bytes += file.size
        return is_copied

    def _copy_from_nearby(self, file: RemoteFile, part: Path) -> bool:
        return self.wish.fill_part is not None and self._copy(self.wish.fill_part, file.path, file, part)

    def _copy(self, fill_part: FillPart, name: str, file: RemoteFile, part: Path) -> bool:
        size_before, add = part_size(part), self.counts.adder(file.path)
        is_copied = fill_part(name, part, file.size, file.sha256, file.git_sha1, add)
        self.counts.set_size(file.path, part_size(part))
        if is_copied:
            with self.lock:
                self.counts.copied += file.size - size_before
        return is_copied

    def _final(self, file: RemoteFile) -> Path:
        return self.plan.layout.final(file.path, file.key)

    def _hash(self, file: RemoteFile, path: Path, slots: _Slots) -> str:
        with slots.hashers, disk_trouble(path):
            started = time.monotonic()
            key = digest(path, git=file.sha256 is None, tell=self.counts.add_hashed, stop=self.limits.shared.stop)
            with self.lock:
                self.counts.hash_seconds += time.monotonic() - started
            return key

    def _record_verified(self, file: RemoteFile, final: Path) -> None:
        """Record a verified file in the note, which is saved every few seconds."""
        with disk_trouble(final):
            self.plan.layout.link(file.path, file.key)
            entry = note_entry(final, file.sha256, file.git_sha1)
        with self.lock:
            self.note.files[file.path] = entry
        if time.monotonic() - self.saved_at > _NOTE_EVERY_S:
            self.save()

    # --- the repository ---------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the note with the files verified until now."""
        with self.lock, disk_trouble(self.plan.layout.path):
            self.saved_at = time.monotonic()
            write_note(self.plan.layout.path, self.note, self.plan.layout.parts)

    def end(self) -> None:
        """Mark the note as complete and remove files that only an earlier downloaded revision had."""
        layout, commit = self.plan.layout, self.plan.snapshot.commit
        for name, entry in self.note.left_over.items():
            if layout.blobs is None and is_as_verified(layout.folder / name, entry):
                with contextlib.suppress(OSError):
                    (layout.folder / name).unlink()
        self.note.left_over = {}
        if self.wish.client_cache and self.cache_bytes:
            size, folder = shown_bytes(self.cache_bytes), self.wish.client_cache.folder
            self.notes.append(f"{size} of {self.wish.repo} were found in {folder} and verified")
        with disk_trouble(layout.folder):
            for folder in {self._final(file).parent for file in self.plan.to_do}:
                sync(folder)
            branch = "main" if self.wish.revision == UNRESOLVED else self.wish.revision
            write_ref(layout, branch, commit)
        self.note.complete = True
        self.save()
        self.ended = time.monotonic()

    def check_mode_result(self) -> Placed:
        """Result in check mode: what a real run would download and verify."""
        plan, size = self.plan, self.plan.to_fetch()
        unverified = len(plan.to_do) - len(plan.missing())
        if size:
            self.notes.append(f"would fetch {shown_bytes(size)} of {self.wish.repo} into {plan.layout.folder}")
        if unverified:
            self.notes.append(f"would read {unverified} files of {self.wish.repo} to verify them")
        return {**self.result(), "changed": not plan.complete, "bytes_fetched": size}

    def result(self) -> Placed:
        """Result for the wish."""
        plan, counts = self.plan, self.counts
        transferred, seconds, rate = counts.fetched + counts.copied, counts.transfer_seconds, 0
        if seconds:
            rate = round(transferred / seconds)
        path = plan.layout.path if self.wish.one_file else plan.layout.folder
        return {
            "commit": plan.snapshot.commit,
            "path": str(path),
            "changed": transferred > 0,
            "bytes": plan.snapshot.size,
            "files": len(plan.snapshot.files),
            "bytes_fetched": counts.fetched,
            "bytes_brought": counts.copied,
            "bytes_skipped": counts.verified_bytes + counts.rehashed_bytes,
            "seconds": round(self.ended - self.started, 3),
            "transfer_seconds": round(seconds, 3),
            "hash_seconds": round(counts.hash_seconds, 3),
            "rate": rate,
            "notes": list(self.notes),
        }


def part_size(part: Path) -> int:
    """Size of a part in bytes; 0 if it does not exist."""
    part_stamp = stamp_of(part)
    if part_stamp is None:
        return 0
    return part_stamp[0]


def _kind(file: RemoteFile) -> str:  # of the hash that verifies the file
    return "sha256" if file.sha256 else "git blob id"
