"""The bytes of a file from the hub's Xet store, in order and from any offset on (``hf_xet``'s download streams).

``huggingface_hub`` downloads whole files with it, out of order, which no other process can continue; a stream in
order can be. The library works in threads of its own and may wait for ever: here it is watched from outside.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..core.addresses import may_lead_to
from ..core.bounded import Deadline
from .hub_client import Xet, asked_once

_PIECE = 4 << 20  # bytes; what the library hands over at once may be more
_AHEAD = 8  # pieces that wait to be written
_LOOK_S = 0.2


class XetUnusableError(Exception):
    """Xet did not bring the bytes."""


_lock = threading.Lock()
_session: list[Any] = []


def _the_session() -> Any:
    """One session for all streams: it holds the threads and the connections."""
    from hf_xet import XetSession  # noqa: PLC0415 (only in the box's environment)

    with _lock:
        if not _session:
            _session.append(XetSession())
        return _session[0]


def xet_pieces(
    xet: Xet, size: int, start: int, *, token: str | None, stall_s: float, stop: threading.Event
) -> Iterator[bytes]:
    """Yield the bytes from ``start`` on. Raises XetUnusableError, also when none comes for ``stall_s`` seconds."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stream = _Stream(xet, size, start, token, stall_s, pieces)
    threading.Thread(target=stream.run, daemon=True, name="xet").start()
    last = time.monotonic()
    try:
        while not stop.is_set():
            try:
                piece = pieces.get(timeout=_LOOK_S)
            except queue.Empty:
                if time.monotonic() - last > stall_s:
                    raise XetUnusableError(f"no byte for {stall_s:g} s") from None
                continue
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise XetUnusableError(f"{type(piece).__name__}: {str(piece)[:160]}") from piece
            yield piece
            last = time.monotonic()
    finally:
        stream.end()


class _Stream:
    """The library's side, in a thread that is left behind when it hangs: it holds nothing of ours but the queue."""

    def __init__(self, xet: Xet, size: int, start: int, token: str | None, stall_s: float, pieces: Any) -> None:
        self.xet, self.size, self.start, self.token, self.stall_s = xet, size, start, token, stall_s
        self.pieces = pieces
        self.ended = threading.Event()
        self.group: Any = None

    def run(self) -> None:
        last: BaseException | None = None
        try:
            for piece in self.stream():
                for at in range(0, len(piece), _PIECE):
                    if not self.put(piece[at : at + _PIECE]):
                        return
        except BaseException as error:  # whatever a library of another language raises
            last = error
        self.put(last)

    def put(self, piece: Any) -> bool:
        """Hand over a piece; return False when nobody wants it any more."""
        while not self.ended.is_set():
            with contextlib.suppress(queue.Full):
                self.pieces.put(piece, timeout=_LOOK_S)
                return True
        return False

    def stream(self) -> Iterator[bytes]:
        from hf_xet import XetFileInfo  # noqa: PLC0415
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # noqa: PLC0415

        headers = build_hf_headers(token=self.token or False, library_name="drafthouse")
        # What huggingface_hub's utils/_xet.py does, with a timeout: the hub names the store and gives a key for it.
        answer = asked_once(self.xet.route, headers, self.stall_s, Deadline(2 * self.stall_s))
        hf_raise_for_status(answer)
        store = answer.headers["X-Xet-Cas-Url"]
        if not may_lead_to(store, self.xet.route):
            raise XetUnusableError(f"the store {store[:80]!r}, which is no public address")
        self.group = _the_session().new_download_stream_group(
            endpoint=store,
            token=answer.headers["X-Xet-Access-Token"],
            token_expiry_unix_secs=int(answer.headers["X-Xet-Token-Expiration"]),
            token_refresh_url=self.xet.route,
            token_refresh_headers=headers,
            # The hub's token is for the hub alone.
            custom_headers={name: value for name, value in headers.items() if name.lower() != "authorization"},
        )
        yield from self.group.download_stream(XetFileInfo(self.xet.hash, self.size), start=self.start or None)

    def end(self) -> None:
        """Let the library stop."""
        self.ended.set()
        if self.group is not None:
            threading.Thread(target=self.abort, daemon=True, name="xet-end").start()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            self.group.abort()
