"""Progress of downloads: counted by the threads that transfer and hash files, reported once a second."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.core.progress import Event, Tell

_EVERY_S = 1.0  # seconds between two reports
_WINDOW = 15  # reports, about 15 s, over which the rate is averaged


class Counts:
    """Bytes and seconds of one repository, called ``name`` in messages."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = 0  # bytes of all files of the revision
        self.verified_bytes = 0  # of files in place that an earlier run verified
        self.rehashed_bytes = 0  # of files in place that this run verified by their hash
        self.fetched = 0  # bytes downloaded from the hub
        self.copied = 0  # bytes copied from the client's cache or from a nearby folder instead
        self.hash_seconds = 0.0  # summed over all threads
        self.transfer_seconds = 0.0  # in which at least one file was being transferred
        self._hashed = 0  # bytes
        self._hashed_at_report = 0  # bytes hashed when the last event was made
        self._transfers = 0  # files that are being transferred
        self._size_by_file: dict[str, int] = {}  # bytes on disk of files that this run works on
        self._transfer_start = 0.0  # seconds of the monotonic clock
        self._lock = threading.Lock()
        self._history: deque[tuple[float, int]] = deque(maxlen=_WINDOW)  # (time, bytes done) of the last events

    def set_size(self, name: str, size: int) -> None:
        """Set how many bytes of a file are on disk."""
        with self._lock:
            self._size_by_file[name] = size

    def adder(self, name: str) -> Callable[[int], None]:
        """Function that adds to the size of a file on disk; a negative count means discarded bytes."""

        def add(count: int) -> None:
            with self._lock:
                self._size_by_file[name] = self._size_by_file.get(name, 0) + count

        return add

    def add_fetched(self, count: int) -> None:
        """Count bytes downloaded from the hub."""
        with self._lock:
            self.fetched += count

    def add_hashed(self, count: int) -> None:
        """Count bytes read and hashed."""
        with self._lock:
            self._hashed += count

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Add the time of the block to ``transfer_seconds``; blocks that overlap count once."""
        with self._lock:
            if self._transfers == 0:
                self._transfer_start = time.monotonic()
            self._transfers += 1
        try:
            yield
        finally:
            with self._lock:
                self._transfers -= 1
                if self._transfers == 0:
                    self.transfer_seconds += time.monotonic() - self._transfer_start

    def event(self) -> Event:
        """Progress event: current activity, bytes done and in total, the recent rate in bytes/s and the seconds left.

        The activity is a transfer if there is one; else hashing, if bytes were hashed since the last event; else the
        wait for a free stream or hasher. Rate and seconds left are missing until two events show progress.
        """
        now = time.monotonic()
        with self._lock:
            if self._transfers > 0:
                activity = "fetching"
                processed = sum(self._size_by_file.values())
            else:
                activity = "waiting for a turn:"
                if self._hashed > self._hashed_at_report:
                    activity = "verifying"
                processed = self._hashed
            self._hashed_at_report = self._hashed
            # Bytes that are hashed again after a wrong download would lead beyond the total.
            done = min(self.total, self.verified_bytes + processed)
        event: Event = {
            "text": f"{activity} {self.name}",
            "item": self.name,
            "done": done,
            "total": self.total,
            "unit": "bytes",
        }
        # Discarded bytes, or a change from transfers to hashing, would give a negative rate: start anew.
        if self._history and self._history[-1][1] > done:
            self._history.clear()
        self._history.append((now, done))
        first_time, first_done = self._history[0]
        if now > first_time and done > first_done:
            rate = (done - first_done) / (now - first_time)
            event |= {"rate": rate, "eta_s": (self.total - done) / rate}
        return event


@contextmanager
def reporting(counts: Sequence[Counts], tell: Tell) -> Iterator[None]:
    """Send a progress event for each repository to ``tell`` once a second, while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_EVERY_S):
            for repository in counts:
                tell(repository.event())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
