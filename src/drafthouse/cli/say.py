"""What a script says while something of ours may bill.

That nobody listens any more, a closed terminal or a pipe, must not keep it from being ended.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from ..core.plain_text import printable
from ..core.typed import typed


def say(text: str) -> None:
    """Print lines that may hold others' words."""
    put("\n".join(map(printable, typed(text).splitlines())) + "\n", sys.stdout)


def said_yes(question: str) -> bool | None:
    """Whether a person at a terminal says yes; None where nobody is there to ask."""
    if not sys.stdin.isatty():
        return None
    try:
        return input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def put(text: str, stream: TextIO) -> None:
    """Write at once; where the terminal or the reader is gone, nothing more is written."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
