"""Bounds on what others send: a hub, a model file, an engine, a report. Each number stands here once, with its reason.

A command that reads what somebody else wrote ends within `READ_S` and some 300 MB of memory, whatever comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

MIB = 1024 * 1024
#: Seconds over all for what a command reads of a hub on its way; a download has a patience of its own.
READ_S = 15.0
#: Bytes and commas of one answer of a hub's API, unpacked: a listing's page has 1,000 files of some 300 bytes.
HUB_ANSWER_BYTES, HUB_ANSWER_COMMAS = 8 * MIB, 200_000
#: Files of one revision: the largest known, DeepSeek-R1 in GGUF, has some 800.
HUB_FILES = 20_000
#: Pages of one listing; one of the hub's own has 1,000 files.
HUB_PAGES = 200
#: Seconds and bytes of one answer of an engine that is no stream: /metrics, /v1/models, /health.
ENGINE_READ_S, ENGINE_ANSWER_BYTES = 20.0, 16 * MIB
#: Bytes of a chat answer: a chunk of one token has some 250, with log probabilities 2,000.
CHAT_BYTES, CHAT_BYTES_PER_TOKEN = 2 * MIB, 8192
#: Commas of a safetensors header: eight a tensor, and some 40,000 tensors in the largest file known.
HEADER_COMMAS = 1_000_000
#: Bytes, keys, tensors and values of arrays of a GGUF header: the largest vocabularies have 260,000 tokens in 11 MB,
#: with scores, types and as many merges again.
GGUF_BYTES, GGUF_KEYS, GGUF_TENSORS, GGUF_VALUES, GGUF_DEPTH = 64 * MIB, 1 << 16, 500_000, 1 << 21, 3
#: Dimensions of a tensor, and its values along one of them.
TENSOR_DIMENSIONS, TENSOR_LENGTH = 8, 1 << 48
#: Layers of a model; the largest known has 160.
LAYERS = 10_000
#: Whole numbers in a model's configuration: none counts more than its parameters.
CONFIG_NUMBER = 10**14


class TooMuch(ValueError):
    """More than a bound allows; the text says which."""


def _late(seconds: float) -> TooMuch:
    return TooMuch(f"no whole answer within {seconds:.0f} s")


class Deadline:
    """The end of an allowance of ``seconds``, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left, 0 when none are."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise TooMuch when the time is over."""
        if self.left() <= 0:
            raise _late(self.seconds)


def joined(pieces: Iterable[bytes], most: int, deadline: Deadline | None = None) -> bytes:
    """All ``pieces`` of an answer, of ``most`` bytes at most. Raises TooMuch."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise TooMuch(f"an answer of more than {most / MIB:.0f} MiB")
        if deadline is not None:
            deadline.check()
    return bytes(data)


def within(seconds: float, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises; TooMuch after ``seconds``.

    A socket's own time-out is that of one read: headers that come a byte at a time never reach it, nor does a name that
    nobody resolves. What is given up goes on in its thread until the connection ends.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:  # raised where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise _late(seconds)
    return returned[0]
