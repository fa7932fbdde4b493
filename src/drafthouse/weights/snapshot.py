"""Download revisions from the Hugging Face hub and verify them: plan all repositories first, then transfer all files.

A wish (`fetch_plan.Wish`) asks for one repository of the hub; it may name the built-in draft head that the files must
contain. A file gets its final name only after it was hashed and flushed to disk, and is then recorded in the note, a
JSON file beside the weights (`integrity.Note`). A run that is killed at any moment leaves verified files, and
unfinished ``.part`` files ("parts") that the next run continues. Lines for the user are called remarks.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import sync
from ..core.format import shown_bytes
from .download import Limits, Shared, Stopped, disk_trouble, fetch
from .fetch_plan import Plan, Wish, make_plan
from .hub_client import UNRESOLVED, RemoteFile
from .integrity import EndedError, Note, digest, is_as_verified, note_entry, stamp_of, write_note
from .layout import check_room, locked_parts, remove_stale_parts, write_ref
from .live_head import check_at_hub
from .snapshot_progress import Counts, reporting

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell

__all__ = ["Settings", "Wish", "place_snapshots"]

_NOTE_EVERY_S = 2.0  # seconds between two writes of the note
_LOOKUP_TRIES = 4  # fewer than for a transfer, so that a missing network is reported soon


@dataclass(frozen=True)
class Settings:
    """Settings of a run, which hold for all its repositories together."""

    limits: Limits = field(default_factory=Limits)
    streams: int = 8  # downloads at once
    hashers: int = 4  # files that are hashed at once
    margin: int = 256 << 20  # bytes to keep free on each disk
    hash_apart: bool = False  # hash only when everything is transferred, so that a benchmark can time the two phases


class Placed(TypedDict):
    """Result for one repository: what is in place now, and what the run transferred and verified for it."""

    commit: str
    path: str  # folder of the files, or the file itself if the wish is for one file
    changed: bool  # bytes were transferred; in check mode: a real run has something to do
    bytes: int  # of all files of the revision
    files: int  # number of files of the revision
    bytes_fetched: int  # downloaded from the hub; in check mode: that would be downloaded
    bytes_brought: int  # copied from the client's cache or from a nearby folder instead
    bytes_skipped: int  # of files that were in place and right before
    seconds: float  # from the start of the run until this repository was done
    transfer_seconds: float  # in which at least one file was being transferred
    hash_seconds: float  # summed over all threads
    rate: int  # bytes/s over transfer_seconds; 0 if nothing was transferred
    notes: list[str]  # remarks: lines for the user


def place_snapshots(
    wishes: Sequence[Wish], tell: Tell, settings: Settings | None = None, check_mode: bool = False
) -> list[Placed]:
    """Put the files of every wish in place; one result for each wish, in the same order.

    ``settings``: None for the defaults. Check mode writes nothing: the results say what a real run would do. Raises
    DrafthouseError with the problems of all repositories before the first download, or those that end the transfer.
    """
    chosen = settings or Settings()
    # Fresh shared state: a stop or a pause of an earlier run with the same settings must not reach this one.
    fresh_limits = replace(chosen.limits, shared=Shared())
    settings = replace(chosen, limits=fresh_limits)
    jobs = [_Job(wish, settings) for wish in wishes]
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        _wait_for_all([pool.submit(job.plan_work) for job in jobs])
    busy = [job for job in jobs if not job.plan.complete]
    check_room([job.plan.need() for job in busy], settings.margin)
    if check_mode:
        return [job.check_mode_result() for job in jobs]
    # Locking creates folders, so it comes only after all checks. What another run put in place between the plan and
    # the lock costs no second download: each existing file is verified before one is downloaded.
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
    """Wait for all futures, then raise one DrafthouseError with the different problems of those that failed.

    ``stop`` is set as soon as one future fails, which makes the others end early; None lets them run to their end. Any
    exception but a DrafthouseError is raised at once: it is a fault of the program or an interrupt, not a report.
    """
    problems: list[Problem] = []
    for future in as_completed(futures):
        try:
            future.result()
        except (Stopped, EndedError):
            continue  # ended by ``stop``: the future that failed first has the problem
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

    A thread for every stream and every hasher: a file that waits to be hashed does not occupy a download stream.
    """
    slots = _Slots(threading.Semaphore(settings.streams), threading.Semaphore(settings.hashers))
    tasks = [_Task(job, files) for job in jobs for files in job.files_by_content()]
    tasks.sort(key=lambda task: task.files[0].size, reverse=True)
    stop = settings.limits.shared.stop
    with ThreadPoolExecutor(settings.streams + settings.hashers) as pool:
        if settings.hash_apart:
            _wait_for_all([pool.submit(task.job.fetch_ahead, task.files[0], slots) for task in tasks], stop)
        _wait_for_all([pool.submit(task.job.put_files, task.files, slots) for task in tasks], stop)


@dataclass(frozen=True)
class _Slots:
    """Limits on parallel work, which all jobs share."""

    streams: threading.Semaphore  # downloads and copies
    hashers: threading.Semaphore


@dataclass(frozen=True)
class _Task:
    """Work for one thread: files of a job with the same content, and so the same size."""

    job: _Job
    files: list[RemoteFile]


class _Job:
    """Download of one repository: its plan, its counters, and the note that is written as files are verified.

    `plan_work` comes first; it alone is called in check mode. Then come `start`, `put_files` for all files, and `end`.
    """

    plan: Plan  # set by plan_work
    note: Note  # the record on disk, as this run writes it; set by start

    def __init__(self, wish: Wish, settings: Settings) -> None:
        self.wish = wish
        self.remarks: list[str] = []  # for the user
        self.limits = replace(settings.limits, token=wish.token, say=self.remarks.append)
        self.counts = Counts(wish.item or wish.repo)
        self.cache = wish.client_cache.as_nearby_folder(self.remarks) if wish.client_cache else None
        self.bytes_from_cache = 0
        self.tried_in_cache: set[str] = set()  # hashes of files
        self.lock = threading.Lock()  # for the note and the sums that many threads add to
        self.saved_at = 0.0  # seconds of the monotonic clock, as the next two
        self.started = time.monotonic()
        self.ended = self.started

    def plan_work(self) -> None:
        """Look up the revision, plan the work, and check the built-in head at the hub. Raises DrafthouseError."""
        patience = self.limits.patience
        self.plan = make_plan(self.wish, replace(patience, tries=min(patience.tries, _LOOKUP_TRIES)))
        self.remarks += self.plan.remarks()
        if self.wish.head:
            self.remarks += check_at_hub(self.wish.head, self.plan, self.limits)
        self.counts.total = self.plan.snapshot.size
        self.counts.verified_bytes = self.plan.verified_bytes
        self.ended = time.monotonic()

    def files_by_content(self) -> list[list[RemoteFile]]:
        """Files to do, grouped by hash: files with the same content are downloaded once."""
        groups: dict[str, list[RemoteFile]] = {}
        for file in self.plan.to_do:
            groups.setdefault(file.key, []).append(file)
        return list(groups.values())

    def start(self) -> None:
        """Remove unfinished files that this run will not continue, and begin a note that is not complete."""
        layout = self.plan.layout
        removed_bytes = remove_stale_parts(layout, [file.key for file in self.plan.to_do])
        if removed_bytes:
            self.remarks.append(f"removed {shown_bytes(removed_bytes)} of unfinished downloads in {layout.folder}")
        self.note = self._opening_note()
        if self.plan.note.complete:
            # If this run is killed, the note on disk must not call the revision complete.
            self.save()

    def _opening_note(self) -> Note:
        """Note before the transfer: the files that are verified already, and those that only earlier commits had."""
        commit = self.plan.snapshot.commit
        note = Note(self.wish.identity(commit), self.wish.repo, self.wish.revision, commit)
        wanted = {file.path for file in self.plan.snapshot.files}
        to_do = {file.path for file in self.plan.to_do}
        earlier = self.plan.note
        for name, entry in earlier.left_over.items():
            if name not in wanted:
                note.left_over[name] = entry
        for name, entry in earlier.files.items():
            if name in wanted and name not in to_do:
                note.files[name] = entry
            elif name not in wanted and earlier.commit != commit:
                note.left_over[name] = entry
        return note

    # --- one file ---------------------------------------------------------------------------------------------

    def put_files(self, files: Sequence[RemoteFile], slots: _Slots) -> None:
        """Put files with the same content in place, verified. Raises DrafthouseError, Stopped and EndedError."""
        for index, file in enumerate(files):
            final = self._final(file)
            # The first file has been verified. The others become copies of it, not further downloads; they are copied
            # to the part and so hashed like a download.
            if index and stamp_of(final) is None:
                part = self.plan.layout.part(file.key)
                with disk_trouble(part):
                    shutil.copyfile(self._final(files[0]), part, follow_symlinks=False)
            if not self._keep_if_right(file, final, slots):
                self._download_verified(file, final, slots)

    def _keep_if_right(self, file: RemoteFile, final: Path, slots: _Slots) -> bool:
        """Verify a file that is in place already; True if it is right and stays.

        False if there is no file, or if it has another size or hash: then it is moved aside.
        """
        file_stamp = stamp_of(final)
        if file_stamp is None:
            return False
        size, _, _ = file_stamp
        found = f"(of {size:,} bytes)"
        if size == file.size:
            found = self._hash(file, final, slots)
        if found == file.key:
            with self.lock:
                self.counts.rehashed_bytes += file.size
            self.counts.set_size(file.path, file.size)
            self._record_verified(file, final)
            return True
        entry = self.plan.note.files.get(file.path)
        # A verified file of an earlier revision is expected to differ, and needs no remark.
        is_earlier_revision = entry is not None and entry.key != file.key and is_as_verified(final, entry)
        with disk_trouble(final):
            final.replace(_wrong_path(final))
        if not is_earlier_revision:
            self.remarks.append(
                f"{file.path} had {_hash_kind(file)} {found} instead of {file.key}: moved aside, fetched again"
            )
        return False

    def _download_verified(self, file: RemoteFile, final: Path, slots: _Slots) -> None:
        """Fill the part, verify it, and give it its final name; a file that comes wrong is downloaded once more.

        Raises DrafthouseError if it comes wrong twice; the last download stays beside ``final``, as ``.wrong``.
        """
        part = self.plan.layout.part(file.key)
        wrong_hashes: list[str] = []
        # The second download tells data that was altered once from a file that always comes wrong.
        for _ in range(2):
            part_hash = file.key
            if not self._fill_part(file, slots):
                part_hash = self._hash(file, part, slots)
            with disk_trouble(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                if part_hash == file.key:
                    sync(part)
                    part.replace(final)
                    _wrong_path(final).unlink(missing_ok=True)
                    return self._record_verified(file, final)
                part.replace(_wrong_path(final))
            wrong_hashes.append(part_hash)
            if len(wrong_hashes) == 1:
                self.remarks.append(
                    f"{file.path} came with {_hash_kind(file)} {part_hash} instead of {file.key}: fetched again"
                )
            self.counts.set_size(file.path, 0)
        raise one_problem(
            "weights-checksum",
            f"{file.path} with {_hash_kind(file)} {' and, fetched again, '.join(wrong_hashes)}",
            f"{_hash_kind(file)} {file.key}, as {self.wish.repo} at {self.plan.snapshot.commit} has it",
            "find out what alters the data in transit (a proxy, a mirror); the download is in"
            f" {_wrong_path(final).name}",
            str(final),
        )

    def fetch_ahead(self, file: RemoteFile, slots: _Slots) -> None:
        """Fill the part of a missing file without hashing it; `put_files`, which comes later, finds it full.

        A file of the right size is left as it is: only its hash will tell whether it must be downloaded.
        """
        file_stamp = stamp_of(self._final(file))
        if file_stamp is None or file_stamp[0] != file.size:
            self._fill_part(file, slots)

    def _fill_part(self, file: RemoteFile, slots: _Slots) -> bool:
        """Fill the part from the client's cache, else from the nearby folder, else from the hub.

        True if the hash is verified: copies are hashed while they are made. False after a download, which is not.
        """
        part = self.plan.layout.part(file.key)
        with slots.streams, self.counts.transferring():
            self.counts.set_size(file.path, part_size(part))
            if self._copy_from_cache(file, part) or self._copy_from_nearby(file, part):
                return True
            if self.wish.offline:
                raise one_problem(
                    "weights-not-offline",
                    f"offline, and {file.path} of {self.wish.repo} is not there, or not with the right bytes",
                    f"{_hash_kind(file)} {file.key}",
                    "run once with access to the Hugging Face hub, or copy it from another machine",
                    str(self._final(file)),
                )
            self.counts.add_fetched(fetch(file, part, self.limits, self.counts.adder(file.path)))
            return False

    def _copy_from_cache(self, file: RemoteFile, part: Path) -> bool:
        """Copy the file from the cache of huggingface_hub; True on success.

        Each hash is tried once: a cached file with wrong bytes would be as wrong the second time.
        """
        cache = self.cache
        cached_path = self.plan.path_in_client_cache(file)
        if cache is None or cached_path is None or file.key in self.tried_in_cache:
            return False
        self.tried_in_cache.add(file.key)
        in_cache = replace(file, path=cached_path)
        is_copied = self._count_copied(file, part, lambda tell: cache.fill_from_remote_file(in_cache, part, tell))
        if is_copied:
            with self.lock:
                self.bytes_from_cache += file.size
        return is_copied

    def _copy_from_nearby(self, file: RemoteFile, part: Path) -> bool:
        """Copy the file from the nearby folder of the wish; False if there is none, or no such file in it."""
        fill_part = self.wish.fill_part
        if fill_part is None:
            return False
        return self._count_copied(file, part, lambda tell: fill_part(file, part, tell))

    def _count_copied(self, file: RemoteFile, part: Path, copy: Callable[[Callable[[int], None]], bool]) -> bool:
        """Call ``copy``, which fills ``part`` and returns whether it did, and count the bytes that it added."""
        size_before = part_size(part)
        is_copied = copy(self.counts.adder(file.path))
        self.counts.set_size(file.path, part_size(part))
        if is_copied:
            with self.lock:
                self.counts.copied += file.size - size_before
        return is_copied

    def _final(self, file: RemoteFile) -> Path:
        return self.plan.layout.final(file.path, file.key)

    def _hash(self, file: RemoteFile, path: Path, slots: _Slots) -> str:
        """Hash of the file at ``path``, of the kind that ``file`` has. Raises DrafthouseError and EndedError."""
        with slots.hashers, disk_trouble(path):
            started = time.monotonic()
            by_git_id = file.sha256 is None
            file_hash = digest(path, git=by_git_id, tell=self.counts.add_hashed, stop=self.limits.shared.stop)
            with self.lock:
                self.counts.hash_seconds += time.monotonic() - started
            return file_hash

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
        """Remove files that only an earlier downloaded revision had, then mark the note as complete."""
        layout = self.plan.layout
        # A Hugging Face cache keeps the files of every commit.
        if layout.blobs is None:
            self._remove_left_over(layout.folder)
        self.note.left_over = {}
        if self.wish.client_cache and self.bytes_from_cache:
            size = shown_bytes(self.bytes_from_cache)
            self.remarks.append(
                f"{size} of {self.wish.repo} were found in {self.wish.client_cache.folder} and verified"
            )
        with disk_trouble(layout.folder):
            for folder in {self._final(file).parent for file in self.plan.to_do}:
                sync(folder)
            branch = "main" if self.wish.revision == UNRESOLVED else self.wish.revision
            write_ref(layout, branch, self.plan.snapshot.commit)
        self.note.complete = True
        self.save()
        self.ended = time.monotonic()

    def _remove_left_over(self, folder: Path) -> None:
        """Remove the files of earlier revisions, except those that somebody changed since they were verified."""
        for name, entry in self.note.left_over.items():
            if is_as_verified(folder / name, entry):
                with contextlib.suppress(OSError):  # the new revision is whole without this
                    (folder / name).unlink()

    def check_mode_result(self) -> Placed:
        """Result in check mode: what a real run would download and verify."""
        plan = self.plan
        bytes_to_fetch = plan.to_fetch()
        unverified = len(plan.to_do) - len(plan.missing())
        if bytes_to_fetch:
            shown = shown_bytes(bytes_to_fetch)
            self.remarks.append(f"would fetch {shown} of {self.wish.repo} into {plan.layout.folder}")
        if unverified:
            self.remarks.append(f"would read {unverified} files of {self.wish.repo} to verify them")
        return {**self.result(), "changed": not plan.complete, "bytes_fetched": bytes_to_fetch}

    def result(self) -> Placed:
        """Result of this job, with what it transferred until now."""
        plan = self.plan
        counts = self.counts
        transferred = counts.fetched + counts.copied
        rate = 0
        if counts.transfer_seconds:
            rate = round(transferred / counts.transfer_seconds)
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
            "transfer_seconds": round(counts.transfer_seconds, 3),
            "hash_seconds": round(counts.hash_seconds, 3),
            "rate": rate,
            "notes": list(self.remarks),
        }


def part_size(part: Path) -> int:
    """Size of a part in bytes; 0 if it does not exist."""
    part_stamp = stamp_of(part)
    if part_stamp is None:
        return 0
    size, _, _ = part_stamp
    return size


def _wrong_path(final: Path) -> Path:
    """Path to which a file with wrong bytes is moved."""
    return final.with_name(f"{final.name}.wrong")


def _hash_kind(file: RemoteFile) -> str:
    """Name, for messages, of the hash that verifies a file."""
    return "sha256" if file.sha256 else "git blob id"
