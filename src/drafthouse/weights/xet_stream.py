"""Read a file from Xet, the hub's chunk store, in order and from any offset, with the library ``hf_xet``.

``huggingface_hub`` downloads a file from Xet out of order, so no other process could continue a partial file. The
library works in its own threads and may wait for ever. Therefore one thread takes the pieces from the library and puts
them into a queue, and the reader of the queue gives up after a time limit.
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

_PIECE = 4 << 20  # bytes; larger pieces of the library are split
_QUEUE_PIECES = 8  # pieces that may wait to be written
_POLL_S = 0.2  # seconds after which a thread that waits for the queue checks whether to stop


class XetUnusableError(Exception):
    """Xet failed to deliver the bytes."""


_lock = threading.Lock()
_session: list[Any] = []  # the shared session; empty until the first download


def _shared_session() -> Any:
    """Session for all streams of the process; it owns the threads and the connections."""
    from hf_xet import XetSession  # noqa: PLC0415 (only in the box's environment)

    with _lock:
        if not _session:
            _session.append(XetSession())
        return _session[0]


def xet_pieces(
    xet: Xet, *, size: int, start: int, token: str | None, stall_s: float, stop: threading.Event
) -> Iterator[bytes]:
    """Yield the bytes of a file of ``size`` bytes from offset ``start`` on.

    They end early, without an error, when ``stop`` is set. ``token``: for the hub; None for a public file. Raises
    XetUnusableError if the library fails, or after ``stall_s`` seconds without a byte.
    """
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_QUEUE_PIECES)
    stream = _Stream(xet, size=size, start=start, token=token, stall_s=stall_s, pieces=pieces)
    threading.Thread(target=stream.run, daemon=True, name="xet").start()
    last_piece_at = time.monotonic()
    try:
        while not stop.is_set():
            try:
                piece = pieces.get(timeout=_POLL_S)
            except queue.Empty:
                if time.monotonic() - last_piece_at > stall_s:
                    raise XetUnusableError(f"no byte for {stall_s:g} s") from None
                continue
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise XetUnusableError(f"{type(piece).__name__}: {str(piece)[:160]}") from piece
            yield piece
            last_piece_at = time.monotonic()
    finally:
        stream.end()


class _Stream:
    """Producer of the queue ``pieces``: puts the bytes into it, then None or the exception of the library.

    It runs in a thread of its own, which is abandoned if the library hangs.
    """

    def __init__(self, xet: Xet, *, size: int, start: int, token: str | None, stall_s: float, pieces: Any) -> None:
        self.xet = xet
        self.size = size
        self.start = start
        self.token = token
        self.stall_s = stall_s
        self.pieces = pieces
        self.ended = threading.Event()  # set when the reader wants no more
        self.group: Any = None  # the library's download; None until it has begun

    def run(self) -> None:
        """Put all pieces into the queue, and at last what ended them; the body of the thread."""
        final: BaseException | None = None
        try:
            for piece in self.stream():
                for offset in range(0, len(piece), _PIECE):
                    if not self.put(piece[offset : offset + _PIECE]):
                        return
        except BaseException as error:  # the library is written in Rust and may raise anything
            final = error
        self.put(final)

    def put(self, piece: Any) -> bool:
        """Put a piece into the queue, and wait while that is full; False if the reader has ended."""
        while not self.ended.is_set():
            with contextlib.suppress(queue.Full):
                self.pieces.put(piece, timeout=_POLL_S)
                return True
        return False

    def stream(self) -> Iterator[bytes]:
        """Ask the hub for the store and a token, then yield the pieces of the library, however long they are.

        Raises XetUnusableError, errors of huggingface_hub, and whatever the library raises.
        """
        from hf_xet import XetFileInfo  # noqa: PLC0415
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # noqa: PLC0415

        headers = build_hf_headers(token=self.token or False, library_name="drafthouse")
        # As in huggingface_hub's utils/_xet.py, with a timeout: the hub names the store and issues a token for it.
        answer = asked_once(self.xet.route, headers, self.stall_s, Deadline(2 * self.stall_s))
        hf_raise_for_status(answer)
        store = answer.headers["X-Xet-Cas-Url"]
        if not may_lead_to(store, self.xet.route):
            raise XetUnusableError(f"the store {store[:80]!r}, which is no public address")
        self.group = _shared_session().new_download_stream_group(
            endpoint=store,
            token=answer.headers["X-Xet-Access-Token"],
            token_expiry_unix_secs=int(answer.headers["X-Xet-Token-Expiration"]),
            token_refresh_url=self.xet.route,
            token_refresh_headers=headers,
            # The hub's own token must not be sent to the store.
            custom_headers={name: value for name, value in headers.items() if name.lower() != "authorization"},
        )
        yield from self.group.download_stream(XetFileInfo(self.xet.hash, self.size), start=self.start or None)

    def end(self) -> None:
        """Stop the producer; abort the library in another thread, because that may block."""
        self.ended.set()
        if self.group is not None:
            threading.Thread(target=self.abort, daemon=True, name="xet-end").start()

    def abort(self) -> None:
        """Abort the library's download; an error does not matter, because nobody reads from it any more."""
        with contextlib.suppress(Exception):
            self.group.abort()
