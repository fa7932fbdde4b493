"""Terminal output and questions of the commands that rent boxes, which cost money while they run.

Writing to a closed terminal or pipe raises nothing here: the caller must still destroy its box.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from ..core.plain_text import printable
from ..core.typed import with_verbs


def say(text: str) -> None:
    """Print text to stdout. Control characters are replaced, and in a wheel `make` targets become verbs."""
    write_now("\n".join(map(printable, with_verbs(text).splitlines())) + "\n", sys.stdout)


def confirmed(question: str) -> bool | None:
    """True if the user answers yes (the default is no); None where stdin is no terminal."""
    if not sys.stdin.isatty():
        return None
    try:
        return input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def write_now(text: str, stream: TextIO) -> None:
    """Write and flush; where that fails, send all later output of the stream to /dev/null."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, stream.fileno())
            os.close(devnull)
