"""Progress of the download of repositories: counted by the transfer and hashing threads, reported once a second."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.core.progress import Event, Tell

_EVERY_S = 1.0
_WINDOW = 15  # reports, about 15 s, over which the rate is averaged


class Counts:
    """Bytes of one repository: ``total``, ``fetched`` from the hub, and ``copied`` from a folder of this machine.

    ``verified_bytes`` were verified by an earlier run, ``rehashed_bytes`` were hashed again. ``hash_seconds`` is summed
    over all threads; ``transfer_seconds`` is the time in which at least one file was being transferred.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = self.verified_bytes = self.rehashed_bytes = self.fetched = self.copied = 0
        self.hash_seconds = self.transfer_seconds = 0.0
        self._hashed = self._hashed_before = self._transfers = 0
        self._size_by_file: dict[str, int] = {}
        self._transfer_start = 0.0
        self._lock = threading.Lock()
        self._history: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

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
        """Progress event: current activity, bytes done and in total, and the recent rate in bytes/s."""
        now = time.monotonic()
        with self._lock:
            if self._transfers > 0:
                activity, processed = "fetching", sum(self._size_by_file.values())
            elif self._hashed > self._hashed_before:
                activity, processed = "verifying", self._hashed
            else:
                activity, processed = "waiting for a turn:", self._hashed
            self._hashed_before = self._hashed
            done = min(self.total, self.verified_bytes + processed)
        event: Event = {
            "text": f"{activity} {self.name}",
            "item": self.name,
            "done": done,
            "total": self.total,
            "unit": "bytes",
        }
        # Discarded bytes would give a negative rate: start anew.
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
