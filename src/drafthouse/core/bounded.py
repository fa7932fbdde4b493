"""Limits for untrusted input: answers of a hub or an engine, model files, reports. Each limit has its reason here.

They keep a command that reads such input within `READ_S` and about 300 MB of memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

MIB = 1024 * 1024
#: Seconds for all requests that a command sends to a hub, except downloads, which `retry.py` limits.
READ_S = 15.0
#: Bytes and commas of one decompressed answer of a hub's API. A page of a listing has 1,000 files of some 300 bytes.
#: Commas, here and below, bound the number of values in a JSON text before it is parsed.
HUB_ANSWER_BYTES = 8 * MIB
HUB_ANSWER_COMMAS = 200_000
#: Files of one revision. The largest repository seen, DeepSeek-R1 in GGUF, has some 800.
HUB_FILES = 20_000
#: Pages of one listing. Hugging Face puts 1,000 files on a page.
HUB_PAGES = 200
#: Seconds and bytes of one answer of an engine that is not streamed: /metrics, /v1/models, /health.
ENGINE_READ_S = 20.0
ENGINE_ANSWER_BYTES = 16 * MIB
#: Bytes of a chat answer, in all and per token. The chunk of a token has some 250, with log probabilities 2,000.
CHAT_BYTES = 2 * MIB
CHAT_BYTES_PER_TOKEN = 8192
#: Commas of a safetensors header: eight per tensor. The largest file seen has some 40,000 tensors.
HEADER_COMMAS = 1_000_000
#: The header of a GGUF file. The largest vocabularies have 260,000 tokens (11 MB), each with a score and a type, and as
#: many merges.
GGUF_BYTES = 64 * MIB
GGUF_KEYS = 1 << 16
GGUF_TENSORS = 500_000
GGUF_VALUES = 1 << 21  # of arrays
GGUF_DEPTH = 3  # nesting of arrays
TENSOR_DIMENSIONS = 8  # number of dimensions of a tensor
TENSOR_LENGTH = 1 << 48  # of one dimension
#: Layers of a model. The largest model seen has 160.
LAYERS = 10_000
#: A whole number in a model's configuration; none should exceed the number of parameters.
CONFIG_NUMBER = 10**14


class TooMuch(ValueError):
    """An input exceeds a limit, which the message names."""


def _late(seconds: float) -> TooMuch:
    """The error of an answer that was not complete after ``seconds``."""
    return TooMuch(f"no whole answer within {seconds:.0f} s")


class Deadline:
    """A time limit that starts now and ends after ``seconds``, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds left; 0 after the end."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise TooMuch after the end."""
        if self.left() <= 0:
            raise _late(self.seconds)


def joined(pieces: Iterable[bytes], most: int, deadline: Deadline | None = None) -> bytes:
    """The joined ``pieces`` of an answer. Raises TooMuch for more than ``most`` bytes, and after the deadline."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > most:
            raise TooMuch(f"an answer of more than {most / MIB:.0f} MiB")
        if deadline is not None:
            deadline.check()
    return bytes(data)


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of ``work``, whose exception is raised here too. Raises TooMuch after ``seconds``.

    A socket's time-out limits a single read: headers that arrive byte by byte never exceed it, and it does not cover
    the resolution of a name. After TooMuch, ``work`` goes on in its daemon thread until its connection ends.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(work())
        except BaseException as error:  # raised again in the calling thread
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not returned:
        raise _late(seconds)
    return returned[0]
