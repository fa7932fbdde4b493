"""Progress of a long step: one JSON object a line in a file on the box; an action shows it while it grows.

A line is ``{"text": str}`` and, where they are known, ``done`` and ``total`` (in ``unit``) and ``eta_s``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Progress:
    """Appends to the progress file, at most once in ``every_s`` unless a line is important."""

    def __init__(self, path: str | None, every_s: float = 1.0) -> None:
        self._path = Path(path) if path else None
        self._every_s = every_s
        self._last = float("-inf")

    def __call__(self, event: Mapping[str, Any], important: bool = False) -> None:
        """Write one event."""
        now = time.monotonic()
        if self._path is None or (not important and now - self._last < self._every_s):
            return
        self._last = now
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(dict(event)) + "\n")


def shown(event: Mapping[str, Any]) -> str:
    """Return an event as the line that a person reads."""
    parts = [str(event.get("text", ""))]
    done, total = event.get("done"), event.get("total")
    if isinstance(done, (int, float)) and isinstance(total, (int, float)) and total:
        if event.get("unit") == "bytes":
            parts.append(f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({done / total:.0%})")
        else:
            parts.append(f"{done:g} of {total:g} ({done / total:.0%})")
    eta = event.get("eta_s")
    if isinstance(eta, (int, float)):
        parts.append(f"about {eta:.0f} s left")
    return ", ".join(part for part in parts if part)
