"""One file from the hub into its ``.part``, which any later process continues: plain HTTP, or the hub's Xet store.

The library's headers and errors are used, but not its ``http_get``: that keeps up to 10 MiB of a stream in memory
(lost with a kill or a stall), swallows stalls in retries of its own, does not try again after a reset or a 5xx, and
sleeps for as long as any Retry-After says (huggingface_hub 2.4.0, file_download.py and utils/_http.py). Here what
arrives is written soon, at the end of the part: its size is what is there.
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

Tell = Callable[[int], None]
# Bytes that are read before they are written: what a reset or a stall can cost. Less of it costs CPU over TLS, whose
# records have 16 KiB; read one by one, they are written as they come (after a try that brought nothing).
_PIECE, _RECORD = 128 << 10, 16 << 10
# A CDN may refuse answers above 50 GB (huggingface_hub's MAX_HTTP_DOWNLOAD_SIZE): larger files are asked for in slices.
SLICE = 32 << 30
_XET_TRIES = 2  # in a row, before plain HTTP
_MADE_WAY = 1 << 20  # bytes that make a try count as progress, or a twentieth of a small file


class Stopped(Exception):
    """A transfer ended because another one failed for good."""


@dataclass(frozen=True)
class Shared:
    """What all streams of a run have in common."""

    brake: Brake = field(default_factory=Brake)
    stop: threading.Event = field(default_factory=threading.Event)
    xet_off: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Limits:
    """``stall_s``: seconds without a byte after which a connection is given up. ``token`` goes to the hub alone."""

    stall_s: float = 60.0
    token: str | None = field(default=None, repr=False)
    xet: bool = True
    patience: Patience = field(default_factory=Patience)
    shared: Shared = field(default_factory=Shared)
    say: Callable[[str], None] = lambda line: None  # lines for a person
    deadline: Deadline | None = None
    """The end of all reading, where a command only looks on its way."""


class _TryAgainError(Exception):
    """What went wrong may be right the next time. ``over``: what the part holds is of no use."""

    def __init__(self, reason: str, wait_s: float | None = None, over: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.over = wait_s, over


def fetch(file: RemoteFile, part: Path, limits: Limits, tell: Tell) -> int:
    """Make ``part`` hold all of ``file``, going on behind what it holds; return the bytes that came for it.

    ``tell`` gets the number of bytes that were added (negative: thrown away). Nothing is verified here. Raises
    DrafthouseError where trying again is no use, and Stopped when ``limits.shared.stop`` is set.
    """
    with _opened(part, file) as handle:
        return _Fetch(file, part, handle, limits, tell).run()


def fetch_start(file: RemoteFile, length: int, handle: int, limits: Limits) -> None:
    """Make the file behind ``handle`` hold the first ``length`` bytes of ``file``, going on behind what it holds."""
    start = replace(file, size=length, xet=None)
    _Fetch(start, Path(file.path), handle, limits, lambda count: None, ranged=length < file.size).run()


class _Fetch:
    """The tries of one file. ``ranged``: its size is not all that the server has."""

    def __init__(
        self, file: RemoteFile, part: Path, handle: int, limits: Limits, tell: Tell, ranged: bool = False
    ) -> None:
        self.file, self.part, self.handle, self.limits, self.tell = file, part, handle, limits, tell
        self.have, self.ranged = os.fstat(handle).st_size, ranged or file.size > SLICE
        self.came = self.skip = 0
        self.careful = False
        self.reasons: list[str] = []

    def run(self) -> int:
        if self.have > self.file.size:
            self.restart()
        failed, overs, xet_off = 0, 0, self.limits.shared.xet_off
        while self.have < self.file.size:
            by_xet = self.file.xet is not None and self.limits.xet and not xet_off.is_set()
            before = self.have
            try:
                self.wait(self.limits.shared.brake.left())
                pieces = self.by_xet() if by_xet else self.by_http()
                for piece in pieces:
                    self.keep(piece)
                error = _TryAgainError("the answer ended too early")
            except _TryAgainError as caught:
                error = caught
            if self.have >= self.file.size:
                break
            if error.over:
                self.restart()
                overs += 1
            if self.have - before >= min(_MADE_WAY, max(1, self.file.size // 20)):
                failed = 0
            failed += 1
            self.careful = failed > 1
            self.reasons.append(f"{error} by Xet" if by_xet else str(error))
            if overs > 1:  # all of it came, and was too little once more
                self.give_up(failed, error)
            if by_xet and failed >= _XET_TRIES:
                # What fails here fails for the other files as well: none of them waits for it again.
                xet_off.set()
                self.limits.say(f"{self.file.path} did not come over Xet ({error}): continuing over plain HTTP")
                failed = 0
            else:
                self.pause(failed, error)
        return self.came

    def pause(self, failed: int, error: _TryAgainError) -> None:
        """Wait before the next try, or give up."""
        pause = self.limits.patience.pause(failed, error.wait_s)
        deadline = self.limits.deadline
        if pause is None or (deadline is not None and pause >= deadline.left()):
            self.give_up(failed, error)
        else:
            if error.wait_s:
                self.limits.shared.brake.hold(pause)
            self.wait(pause)

    def give_up(self, failed: int, error: _TryAgainError) -> None:
        causes = "; before that: ".join(dict.fromkeys(reversed(self.reasons[-4:])))
        wait_s = error.wait_s or 0.0
        if wait_s > self.limits.patience.longest_wait_s:
            causes += f", retry after {wait_s:.0f} s"
        raise one_problem(
            "download-broke-off",
            f"{self.file.path}: {causes}; {_tries(failed)} received nothing"
            f" ({self.have:,} of {self.file.size:,} bytes received)",
            "a working connection",
            "check the network (HF_ENDPOINT names a mirror), then run again: it resumes where it stopped",
            self.file.url,
        )

    def restart(self) -> None:
        """Throw away what the part holds."""
        os.ftruncate(self.handle, 0)
        self.tell(-self.have)
        self.have = 0

    def wait(self, seconds: float) -> None:
        if self.limits.shared.stop.wait(max(0.0, seconds)):
            raise Stopped

    def keep(self, piece: bytes | memoryview) -> None:
        """Write a piece behind what is there; what would be more than the file is not taken."""
        self.came += len(piece)
        known = min(self.skip, len(piece))
        self.skip -= known
        view = memoryview(piece)[known : known + self.file.size - self.have]
        kept = len(view)
        with disk_trouble(self.part):
            while view:
                wrote = os.pwrite(self.handle, view, self.have)
                view, self.have = view[wrote:], self.have + wrote
        self.tell(kept)
        if self.limits.shared.stop.is_set():
            raise Stopped

    # --- the two ways -------------------------------------------------------------------------------------

    def by_xet(self) -> Iterator[bytes]:
        assert self.file.xet is not None
        limits, stop = self.limits, self.limits.shared.stop
        try:
            self.skip = 0
            yield from xet_pieces(
                self.file.xet, self.file.size, self.have, token=limits.token, stall_s=limits.stall_s, stop=stop
            )
        except XetUnusableError as error:
            raise _TryAgainError(str(error)) from error

    def request(self) -> urllib.request.Request:
        """The request for the bytes behind those that are there; the token stays with the hub."""
        from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 (only in the box's environment)

        request = urllib.request.Request(self.file.url)  # noqa: S310 (the endpoint is the operator's)
        headers = build_hf_headers(token=self.limits.token or False, library_name="drafthouse")
        headers["accept-encoding"] = "identity"  # offsets are those of the file
        if self.have or self.ranged:
            headers["range"] = f"bytes={self.have}-{min(self.file.size, self.have + SLICE) - 1}"
        for name, value in headers.items():
            add = request.add_unredirected_header if name.lower() == "authorization" else request.add_header
            add(name, value)
        return request

    def by_http(self) -> Iterator[bytes | memoryview]:
        # The way to the bytes is asked for with each try: the address of the CDN expires.
        request = self.request()
        buffer = memoryview(bytearray(_PIECE))
        deadline, stall_s, careful = self.limits.deadline, self.limits.stall_s, self.careful
        if deadline is not None:
            stall_s = max(0.1, min(stall_s, deadline.left()))
            # Only a read that returns with what has come can be cut off in time.
            careful = True
        try:
            # Its headers too may drip: the time-out of a socket is that of one read.
            with within(2 * stall_s, lambda: opener().open(request, timeout=stall_s)) as answer:
                self.check(answer.status, answer.headers)
                while self.have < self.file.size:
                    if deadline is not None:
                        deadline.check()
                    piece = answer.read1(_RECORD) if careful else buffer[: answer.readinto(buffer)]
                    if not piece:
                        break
                    yield piece
        except urllib.error.HTTPError as error:
            with error:
                self.refused(error.code, dict(error.headers.items()), redirected=error.url != self.file.url)
        except TimeoutError as error:
            raise _TryAgainError(f"no byte for {self.limits.stall_s:g} s") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _TryAgainError(f"no connection within {self.limits.stall_s:g} s") from error
            raise _TryAgainError(f"{str(error.reason)[:160]}") from error
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise _TryAgainError(f"{type(error).__name__}: {str(error)[:160]}") from error

    def check(self, status: int, headers: Mapping[str, str]) -> None:
        """Raise unless an answer brings the bytes behind those that are there."""
        if headers.get("Content-Encoding", "identity").lower() != "identity":
            raise _TryAgainError(f"an answer with Content-Encoding ({headers['Content-Encoding']})")
        self.skip = 0
        if status == 200:
            self.skip = self.have  # no ranges here: the answer begins with what is there
        elif status == 206:
            span = re.match(r"bytes (\d+)-\d+/", headers.get("Content-Range", ""))
            if not span or int(span[1]) != self.have:
                raise _TryAgainError(f"not the range from byte {self.have}: {headers.get('Content-Range')}")
        else:
            raise _TryAgainError(f"HTTP {status}")

    def refused(self, status: int, headers: Mapping[str, str], redirected: bool) -> NoReturn:
        """Raise what a status of 400 and more means."""
        if status == 416:  # the part has more than the server's file: not what it serves today
            raise _TryAgainError(f"HTTP 416: the server's file ends before byte {self.have}", over=True)
        if status in PASSING:
            raise _TryAgainError(f"HTTP {status}", asked_to_wait(headers))
        # An address of the CDN that has expired, or that it does not know yet, is no refusal of the hub.
        problem = None if redirected else self.refusal()
        if problem:
            raise DrafthouseError(problem)
        raise _TryAgainError(f"HTTP {status}")

    def refusal(self) -> Problem | None:
        """Ask once more through the library, which knows what the hub's refusals mean."""
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
    """Keeps the token on the hub, and leads to public addresses only: the CDN, or the host that was asked."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not may_lead_to(newurl, req.full_url):
            raise urllib.error.URLError(f"a redirect to {newurl[:80]!r}, which is no public address")
        following = super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if following and token and _origin(newurl) == _origin(req.full_url):
            following.add_unredirected_header("Authorization", token)
        return following

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # Python 3.10 has none


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


@functools.cache
def opener() -> urllib.request.OpenerDirector:
    """What opens addresses: the environment's proxies, and the certificates that the library trusts.

    Bytes are read by the standard library: measured, three times as fast as the library's client, which is busy with
    the CPU at some 300 MB/s (docs/decisions/).
    """
    import httpx2  # noqa: PLC0415

    return urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=httpx2.create_ssl_context()), _Redirects()
    )  # fmt: skip


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries in a row"


# --- the part on the disk -----------------------------------------------------------------------------------


@contextmanager
def _opened(part: Path, file: RemoteFile) -> Iterator[int]:
    """Open the part for writing, never through a symbolic link."""
    with disk_trouble(part):
        there = part.lstat() if part.exists() else None
        if there and there.st_nlink > 1 and there.st_size != file.size:
            part.unlink()  # it is somebody else's file as well (a hard link): nothing is written into it
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


_ON_DISK = {
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
    """Turn what the file system says into a DrafthouseError that names ``path``."""
    try:
        yield
    except OSError as error:
        other = Problem("file-unwritable", str(error.strerror or error), "a writable folder", "check the folder")
        problem = _ON_DISK.get(error.errno or 0, other)
        do = f"{problem.do}, then run again: it resumes"
        raise DrafthouseError(replace(problem, do=do, where=str(path))) from error
