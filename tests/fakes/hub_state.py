"""A model repository of the tests' hub: its files, who may read them, what goes wrong, and what was seen."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fakes.hub_contents import Content

COMMIT = "a" * 40
RIGHT, STRANGER = "hf_right", "hf_stranger"  # tokens: of a member, and of somebody who did not accept the licence
ALWAYS = -1


@dataclass
class Fault:
    """What happens to whoever asks; the first one of its list with ``times`` left is used, then one less is left.

    Offsets are those of the file, not of the answer: ``cut_at`` 10 cuts an answer to ``Range: bytes=8-`` after 2 bytes.
    """

    times: int = 1  # so many answers; ALWAYS
    rate: float = 0  # bytes/s of this connection; 0: as fast as it goes
    stall_at: int | None = None  # nothing more from this offset on, and the connection stays open
    cut_at: int | None = None  # the connection ends here, before all is sent
    reset: bool = False  # ... and ends with a reset (RST) and not in good order (FIN)
    status: int = 0  # this status and no file
    retry_after: str = ""  # the Retry-After that goes with it
    wrong_at: int | None = None  # the byte at this offset is another one
    no_range: bool = False  # all of the file, with 200, whatever range was asked for
    length_off: int = 0  # Content-Length is this much more (less, if negative) than what is sent


@dataclass
class Hub:
    """One model repository: its files by commit, who may read it, and what goes wrong.

    ``faults`` by what is asked for: a file's name or ``*`` (its bytes), ``resolve:<name>`` or ``resolve:*`` (the way
    to them, HEAD too), ``api`` (info, listing), ``xet`` (the token of the Xet store).
    """

    files: Mapping[str, Content | bytes]  # of COMMIT
    repo: str = "org/model"
    gated: bool = False
    right: str = RIGHT  # the token of a member
    url: str = ""  # for HF_ENDPOINT
    commits: dict[str, Mapping[str, Content | bytes]] = field(default_factory=dict)  # the others
    refs: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    rate: float = 0  # bytes/s of all connections together; 0: as fast as it goes
    page: int = 1000  # entries in one answer to /tree
    cdn: bool = True  # large files lie on the second origin
    xet: dict[str, str] = field(default_factory=dict)  # file -> Xet hash
    xet_store: str = ""  # X-Xet-Cas-Url, such as local:///folder
    # What was seen:
    sent: int = 0  # bytes of files handed to the kernel
    sent_of: Counter[str] = field(default_factory=Counter)  # the same by file
    asked: list[str] = field(default_factory=list)  # paths asked of the hub
    cdn_asked: list[str] = field(default_factory=list)  # "<file> <Range or ->", asked of the CDN
    tokens_at_cdn: int = 0  # requests there that carried Authorization: a leak
    streams: int = 0  # answers with bytes of files that are under way
    most_streams: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _due: float = 0  # when the next byte may go, where ``rate`` limits

    def at(self, revision: str) -> tuple[str, Mapping[str, Content | bytes]] | None:
        """The commit that a revision is, and its files."""
        commit = self.refs.get(revision, revision)
        files = {COMMIT: self.files, **self.commits}.get(commit)
        return None if files is None else (commit, files)

    def fault(self, *names: str) -> Fault:
        """Return what goes wrong with this answer, and count it."""
        with self.lock:
            for fault in (fault for name in names for fault in self.faults.get(name, [])):
                if fault.times:
                    fault.times -= fault.times > 0
                    return fault
        return Fault()

    def wait_turn(self, count: int) -> None:
        """Wait until ``count`` bytes may go, where all connections share a rate."""
        if self.rate:
            with self.lock:
                self._due = max(self._due, time.monotonic() - 0.05) + count / self.rate
                due = self._due
            time.sleep(max(0.0, due - time.monotonic()))

    def counted(self, name: str, count: int) -> None:
        """Count bytes that went."""
        with self.lock:
            self.sent += count
            self.sent_of[name] += count

    def state(self) -> dict[str, object]:
        """What was counted, as plain data."""
        with self.lock:
            return {
                "sent": self.sent,
                "sent_of": dict(self.sent_of),
                "most_streams": self.most_streams,
                "cdn_asked": list(self.cdn_asked),
                "tokens_at_cdn": self.tokens_at_cdn,
            }
