"""Download one file of the Hugging Face hub into a partial file, which a later process can continue.

Bytes come over plain HTTP or from Xet, the hub's chunk store, and are appended to the partial file ("part"). Its size
says where to continue. ``http_get`` of huggingface_hub 2.4.0 (file_download.py) is not used: it keeps up to 10 MiB in
memory, hides stalls, does not retry after a reset or a 5xx, and sleeps as long as any Retry-After says.
"""

from __future__ import annotations

import errno
import functools
import http.client
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from ..core.addresses import may_lead_to
from ..core.bounded import Deadline, within
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.retry import PASSING, Brake, Patience, asked_to_wait
from .hub_client import RemoteFile, refusal
from .xet_stream import XetUnusableError, xet_pieces

Tell = Callable[[int], None]  # receives the number of bytes added, negative for discarded ones
# Bytes of one read. A reset or a stall loses up to _PIECE bytes; smaller reads cost CPU. After two failures in a row
# one TLS record of 16 KiB is read at a time, so that every byte that arrives is written.
_PIECE = 128 << 10
_RECORD = 16 << 10
# Bytes of one request. A CDN may refuse answers above 50 GB (huggingface_hub's MAX_HTTP_DOWNLOAD_SIZE): larger files
# are requested in slices.
SLICE = 32 << 30
_XET_TRIES = 2  # failures in a row after which plain HTTP is used
_PROGRESS_BYTES = 1 << 20  # received bytes that count as progress; for a small file a twentieth of its size


class Stopped(Exception):
    """The transfer was stopped because another one failed."""


@dataclass(frozen=True)
class Shared:
    """State shared by all streams of a run."""

    brake: Brake = field(default_factory=Brake)  # a pause for all streams
    stop: threading.Event = field(default_factory=threading.Event)  # set: all streams end with Stopped
    xet_off: threading.Event = field(default_factory=threading.Event)  # set: Xet is given up for all files


@dataclass(frozen=True)
class Limits:
    """Limits of a download, and what all downloads of a run share."""

    stall_s: float = 60.0  # seconds without a byte after which a connection is given up
    token: str | None = field(default=None, repr=False)  # sent to the hub only; None: no token
    xet: bool = True  # False: plain HTTP only
    patience: Patience = field(default_factory=Patience)  # how often, and after which pauses, a download is retried
    shared: Shared = field(default_factory=Shared)
    say: Callable[[str], None] = lambda line: None  # receives lines for the user
    deadline: Deadline | None = None  # ends all reading, for a command that reads only headers; None: no limit


class _TryAgainError(Exception):
    """A failure to retry. ``wait_s``: pause that the server asked for, or None; ``discard``: empty the part first."""

    def __init__(self, reason: str, wait_s: float | None = None, discard: bool = False) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        self.discard = discard


def fetch(file: RemoteFile, part: Path, limits: Limits, tell: Tell) -> int:
    """Complete ``part`` from its current size to all bytes of ``file``; return the number of bytes received.

    Bytes that are received twice, after a restart, count twice. ``tell`` receives the number of bytes added (negative:
    discarded). No hash is checked here. Raises DrafthouseError when retries are used up or useless, and Stopped when
    ``limits.shared.stop`` is set.
    """
    with _open_part(part, file) as handle:
        return _Fetch(file, part, handle, limits, tell).run()


def fetch_start(file: RemoteFile, length: int, handle: int, limits: Limits) -> None:
    """Extend the open file ``handle`` to the first ``length`` bytes of ``file``, over plain HTTP.

    Raises DrafthouseError and Stopped as `fetch` does.
    """
    start = replace(file, size=length, xet=None)
    # The open file may have no name: messages about the disk name the file at the hub instead.
    _Fetch(start, Path(file.path), handle, limits, tell=lambda count: None, ranged=length < file.size).run()


class _Fetch:
    """Download of one file, with retries, into its opened part.

    ``handle`` is the part's file descriptor, ``part`` its path for messages. ``ranged``: request byte ranges always,
    even for the first byte.
    """

    def __init__(
        self, file: RemoteFile, part: Path, handle: int, limits: Limits, tell: Tell, ranged: bool = False
    ) -> None:
        self.file = file
        self.part = part
        self.handle = handle
        self.limits = limits
        self.tell = tell
        self.written = os.fstat(handle).st_size  # bytes in the part
        self.ranged = ranged or file.size > SLICE
        self.received = 0  # bytes over the network
        self.skip_bytes = 0  # that the answer repeats, because the part has them already
        self.small_reads = False
        self.reasons: list[str] = []  # of all failures

    def run(self) -> int:
        """Try until the part is complete; the number of bytes received. Raises DrafthouseError and Stopped."""
        if self.written > self.file.size:
            self.restart()
        failures = 0  # in a row
        discards = 0  # restarts that the server's answers called for
        xet_off = self.limits.shared.xet_off
        while self.written < self.file.size:
            by_xet = self.file.xet is not None and self.limits.xet and not xet_off.is_set()
            written_before = self.written
            try:
                self.wait(self.limits.shared.brake.left())
                pieces = self.by_xet() if by_xet else self.by_http()
                for piece in pieces:
                    self.write(piece)
                error = _TryAgainError("the answer ended too early")
            except _TryAgainError as raised:
                error = raised
            if self.written >= self.file.size:
                break
            if error.discard:
                self.restart()
                discards += 1
            # A try that made progress ends the row of failures: only tries without progress use up the patience.
            progress_bytes = min(_PROGRESS_BYTES, max(1, self.file.size // 20))
            if self.written - written_before >= progress_bytes:
                failures = 0
            failures += 1  # this try failed after all
            self.small_reads = failures > 1
            self.reasons.append(f"{error} by Xet" if by_xet else str(error))
            if discards > 1:  # the server's file is shorter than the listing says
                self.give_up(failures, error)
            if by_xet and failures >= _XET_TRIES:
                # Xet will fail for the other files too: give it up for all of them.
                xet_off.set()
                self.limits.say(f"{self.file.path} did not come over Xet ({error}): continuing over plain HTTP")
                failures = 0
            else:
                self.wait_or_give_up(failures, error)
        return self.received

    def wait_or_give_up(self, failures: int, error: _TryAgainError) -> None:
        """Wait before the next try; give up if the patience is used up or the deadline would pass meanwhile.

        A pause that the server asked for holds all streams of the run.
        """
        pause = self.limits.patience.pause(failures, error.wait_s)
        deadline = self.limits.deadline
        if pause is None or (deadline is not None and pause >= deadline.left()):
            self.give_up(failures, error)
        else:
            if error.wait_s:
                self.limits.shared.brake.hold(pause)
            self.wait(pause)

    def give_up(self, failures: int, error: _TryAgainError) -> None:
        """Raise DrafthouseError with the last four different reasons, the newest first."""
        causes = "; before that: ".join(dict.fromkeys(reversed(self.reasons[-4:])))
        wait_s = error.wait_s or 0.0
        if wait_s > self.limits.patience.longest_wait_s:
            causes += f", retry after {wait_s:.0f} s"
        raise one_problem(
            "download-broke-off",
            f"{self.file.path}: {causes}; {_tries(failures)} received nothing"
            f" ({self.written:,} of {self.file.size:,} bytes received)",
            "a working connection",
            "check the network (HF_ENDPOINT names a mirror), then run again: it resumes where it stopped",
            self.file.url,
        )

    def restart(self) -> None:
        """Discard the bytes in the part."""
        os.ftruncate(self.handle, 0)
        self.tell(-self.written)
        self.written = 0

    def wait(self, seconds: float) -> None:
        """Wait; not at all for a negative time. Raises Stopped as soon as the run is stopped."""
        if self.limits.shared.stop.wait(max(0.0, seconds)):
            raise Stopped

    def write(self, piece: bytes | memoryview) -> None:
        """Append a piece, without bytes that the part has already and without bytes beyond the file's size.

        Raises DrafthouseError for an error of the disk, and Stopped after the piece was written.
        """
        self.received += len(piece)
        skipped = min(self.skip_bytes, len(piece))
        self.skip_bytes -= skipped
        unwritten = memoryview(piece)[skipped : skipped + self.file.size - self.written]
        added = len(unwritten)
        with disk_trouble(self.part):
            while unwritten:
                count = os.pwrite(self.handle, unwritten, self.written)
                unwritten = unwritten[count:]
                self.written += count
        self.tell(added)
        if self.limits.shared.stop.is_set():
            raise Stopped

    # --- the two transports -------------------------------------------------------------------------------

    def by_xet(self) -> Iterator[bytes]:
        """Yield the missing bytes in order, from Xet. Raises _TryAgainError."""
        assert self.file.xet is not None
        limits = self.limits
        try:
            self.skip_bytes = 0
            yield from xet_pieces(
                self.file.xet,
                size=self.file.size,
                start=self.written,
                token=limits.token,
                stall_s=limits.stall_s,
                stop=limits.shared.stop,
            )
        except XetUnusableError as error:
            raise _TryAgainError(str(error)) from error

    def request(self) -> urllib.request.Request:
        """HTTP request for the missing bytes, a slice at most; redirects do not receive the token."""
        from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 (only in the box's environment)

        request = urllib.request.Request(self.file.url)  # noqa: S310 (the endpoint is the operator's)
        headers = build_hf_headers(token=self.limits.token or False, library_name="drafthouse")
        headers["accept-encoding"] = "identity"  # byte ranges count bytes of the uncompressed file
        if self.written or self.ranged:
            headers["range"] = f"bytes={self.written}-{min(self.file.size, self.written + SLICE) - 1}"
        for name, value in headers.items():
            add = request.add_unredirected_header if name.lower() == "authorization" else request.add_header
            add(name, value)
        return request

    def by_http(self) -> Iterator[bytes | memoryview]:
        """Yield the missing bytes in order, over plain HTTP. Raises _TryAgainError; DrafthouseError if refused.

        A piece is a view of one buffer: the next one overwrites it.
        """
        # Each try starts at the hub, not at the CDN: the CDN's URL expires.
        request = self.request()
        buffer = memoryview(bytearray(_PIECE))
        deadline = self.limits.deadline
        stall_s = self.limits.stall_s
        small_reads = self.small_reads
        if deadline is not None:
            stall_s = max(0.1, min(stall_s, deadline.left()))
            # A read of a large buffer waits until it is full, so it could pass the deadline.
            small_reads = True
        try:
            # The socket timeout limits one read only; headers that arrive byte by byte need a limit too.
            with within(2 * stall_s, lambda: opener().open(request, timeout=stall_s)) as answer:
                self.check_answer(answer.status, answer.headers)
                while self.written < self.file.size:
                    if deadline is not None:
                        deadline.check()
                    piece = answer.read1(_RECORD) if small_reads else buffer[: answer.readinto(buffer)]
                    if not piece:
                        break
                    yield piece
        except urllib.error.HTTPError as error:
            with error:
                self.raise_for_status(error.code, dict(error.headers.items()), redirected=error.url != self.file.url)
        except TimeoutError as error:
            raise _TryAgainError(f"no byte for {self.limits.stall_s:g} s") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _TryAgainError(f"no connection within {self.limits.stall_s:g} s") from error
            raise _TryAgainError(f"{str(error.reason)[:160]}") from error
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise _TryAgainError(f"{type(error).__name__}: {str(error)[:160]}") from error

    def check_answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Raise _TryAgainError unless the answer has the missing bytes; set how many bytes to skip.

        The hub and its CDN answer 200 with the whole file, or 206 with the range from the first missing byte on.
        """
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _TryAgainError(f"an answer with Content-Encoding ({headers['Content-Encoding']})")
        self.skip_bytes = 0
        if status == 200:
            self.skip_bytes = self.written  # the server ignored the range and sends the whole file
        elif status == 206:
            span = re.match(r"bytes (\d+)-\d+/", headers.get("Content-Range", ""))
            if not span or int(span[1]) != self.written:
                raise _TryAgainError(f"not the range from byte {self.written}: {headers.get('Content-Range')}")
        else:
            raise _TryAgainError(f"HTTP {status}")

    def raise_for_status(self, status: int, headers: Mapping[str, str], redirected: bool) -> NoReturn:
        """Raise _TryAgainError for a status of 400 or more, or DrafthouseError if the hub refuses the file.

        ``redirected``: the answer came from the CDN, not from the hub.
        """
        if status == 416:  # the part is longer than the server's file
            raise _TryAgainError(f"HTTP 416: the server's file ends before byte {self.written}", discard=True)
        if status in PASSING:
            raise _TryAgainError(f"HTTP {status}", asked_to_wait(headers))
        # An error of the CDN, such as an expired URL, is not a refusal by the hub.
        problem = None if redirected else self.hub_refusal()
        if problem:
            raise DrafthouseError(problem)
        raise _TryAgainError(f"HTTP {status}")

    def hub_refusal(self) -> Problem | None:
        """Send one HEAD request through huggingface_hub, which explains refusals.

        None if the hub does not refuse the file, if a retry may help, or if it does not answer.
        """
        import httpx2  # noqa: PLC0415 (what the hub's client speaks with)
        from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # noqa: PLC0415

        headers = build_hf_headers(token=self.limits.token or False, library_name="drafthouse")
        url = self.file.url
        try:
            hf_raise_for_status(
                get_session().head(url, headers=headers, timeout=self.limits.stall_s, follow_redirects=False)
            )
        except HfHubHTTPError as error:
            root, repo, commit = self.file.source
            return refusal(error, repo, commit, root)
        except httpx2.HTTPError:
            pass
        return None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to public addresses or to the same host only; send the token to the same origin only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Request that follows a redirect. Raises URLError for an address that is not allowed.

        A 308 is handled as a 307, because Python 3.10 does not know it.
        """
        if not may_lead_to(newurl, req.full_url):
            raise urllib.error.URLError(f"a redirect to {newurl[:80]!r}, which is no public address")
        known_code = 307 if code == 308 else code
        following = super().redirect_request(req, fp, known_code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if following and token and _origin(newurl) == _origin(req.full_url):
            following.add_unredirected_header("Authorization", token)
        return following

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # missing in Python 3.10


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of a URL; None for a part that it does not name."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


@functools.cache
def opener() -> urllib.request.OpenerDirector:
    """HTTP client with the environment's proxies and the certificates that huggingface_hub trusts.

    The standard library is three times as fast as httpx2, which needs a CPU for 300 MB/s (docs/decisions/downloads.md).
    """
    import httpx2  # noqa: PLC0415

    return urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=httpx2.create_ssl_context()), _Redirects()
    )  # fmt: skip


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries in a row"


# --- the part on the disk -----------------------------------------------------------------------------------


@contextmanager
def _open_part(part: Path, file: RemoteFile) -> Iterator[int]:
    """Open the part for reading and writing, never through a symbolic link; the file descriptor. Closes it at the end.

    Raises DrafthouseError.
    """
    with disk_trouble(part):
        status = part.lstat() if part.exists() else None
        if status and status.st_nlink > 1 and status.st_size != file.size:
            part.unlink()  # a hard link: writing would change the file that it shares
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


_PROBLEM_BY_ERRNO = {
    errno.ENOSPC: Problem(
        "disk-full", "no space left (or no inode)", "room for the rest", "free some, or set drafthouse_models_dir"
    ),
    errno.EDQUOT: Problem(
        "disk-full", "the disk quota is exceeded", "room for the rest", "raise it, or set drafthouse_models_dir"
    ),
    errno.EROFS: Problem(
        "file-unwritable", "a read-only file system", "a writable one", "mount it rw, or set another folder"
    ),
    errno.EACCES: Problem(
        "file-unwritable", "no permission to write", "a writable folder", "correct its owner or mode"
    ),
    errno.EPERM: Problem(
        "file-unwritable", "no permission to write", "a writable folder", "correct its owner, mode or attributes"
    ),
    errno.EFBIG: Problem("file-unwritable", "a file size limit", "a file system for larger files", "use another one"),
    errno.ELOOP: Problem(
        "file-unwritable", "a symbolic link", "a file or nothing", "remove it: Drafthouse does not write through links"
    ),
    errno.EIO: Problem("disk-failing", "the disk reports an error", "a working disk", "read dmesg, then replace it"),
}


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a DrafthouseError that names ``path``."""
    try:
        yield
    except OSError as error:
        other = Problem("file-unwritable", str(error.strerror or error), "a writable folder", "check the folder")
        problem = _PROBLEM_BY_ERRNO.get(error.errno or 0, other)
        do = f"{problem.do}, then run again: it resumes"
        raise DrafthouseError(replace(problem, do=do, where=str(path))) from error
