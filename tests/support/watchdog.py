"""What the watchdog wrote, for the tests that look at its decisions."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from drafthouse.addons.watchdog.journal import JOURNAL


def read_journal(folder: Path) -> list[Any]:
    """The journal's lines, the oldest first; one that was cut off by a full disk is left out."""
    found: list[Any] = []
    for file in (folder / "journal.1.jsonl", folder / JOURNAL):
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found
