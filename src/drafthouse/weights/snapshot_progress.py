"""How far a repository is: counted by the threads that fetch and hash, told once a second."""

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
_WINDOW = 15  # ticks that the rate is taken over


class Counts:
    """Bytes of one repository: ``standing`` were there verified, ``read_right`` are by reading them now.

    ``fetched`` came from the hub, ``brought`` from elsewhere. Seconds of hashing are those of all threads together,
    seconds of transfer those in which at least one file was under way.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = self.standing = self.read_right = self.fetched = self.brought = 0
        self.hash_seconds = self.transfer_seconds = 0.0
        self._hashed = self._hashed_before = self._open = 0
        self._lie: dict[str, int] = {}
        self._since = 0.0
        self._lock = threading.Lock()
        self._seen: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

    def lies(self, name: str, count: int) -> None:
        """Say how many bytes of a file lie in its part, or in place."""
        with self._lock:
            self._lie[name] = count

    def adder(self, name: str) -> Callable[[int], None]:
        """What counts more bytes of a file; negative when they were thrown away."""

        def add(count: int) -> None:
            with self._lock:
                self._lie[name] = self._lie.get(name, 0) + count

        return add

    def came(self, count: int) -> None:
        """Count bytes that came from the hub."""
        with self._lock:
            self.fetched += count

    def hashed(self, count: int) -> None:
        """Count bytes that were read and hashed."""
        with self._lock:
            self._hashed += count

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Count the time in which at least one file is under way."""
        with self._lock:
            if self._open == 0:
                self._since = time.monotonic()
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    self.transfer_seconds += time.monotonic() - self._since

    def event(self) -> Event:
        """What is done now, its bytes so far and in all, and the rate of the last seconds."""
        now = time.monotonic()
        with self._lock:
            if self._open > 0:
                activity, moved = "fetching", sum(self._lie.values())
            elif self._hashed > self._hashed_before:
                activity, moved = "verifying", self._hashed
            else:
                activity, moved = "waiting for a turn:", self._hashed
            self._hashed_before = self._hashed
            done = min(self.total, self.standing + moved)
        event: Event = {
            "text": f"{activity} {self.name}",
            "item": self.name,
            "done": done,
            "total": self.total,
            "unit": "bytes",
        }
        if self._seen and self._seen[-1][1] > done:
            self._seen.clear()
        self._seen.append((now, done))
        first, before = self._seen[0]
        if now > first and done > before:
            rate = (done - before) / (now - first)
            event |= {"rate": rate, "eta_s": (self.total - done) / rate}
        return event


@contextmanager
def telling(counts: Sequence[Counts], tell: Tell) -> Iterator[None]:
    """Tell once a second how far each is."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_EVERY_S):
            for one in counts:
                tell(one.event())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
