"""Reads on the box the state of the deadline watch, the program that destroys a rental when its time is over.

The watch's folder exists on a rented box only. It holds the order that arms the watch (arm.json), the last count of the
time left (clock.json), and a journal of its requests. Standard library only: it runs with the Python of the box.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...cloud.deadline import FOLDER
from ...core.documents import json_of
from ...core.files import object_in
from ...core.locks import is_held
from ...core.procfs import Clocks, clocks

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DeadlineFacts

# Number of journal lines to read, from the end: the watch's last requests and their results.
_LINES = 3


def read_watch(folder: Path = Path(FOLDER), now: Clocks | None = None) -> DeadlineFacts | None:
    """The state of the box's watch; None if the box has no deadline, or the user may not read it.

    ``now``: this machine's clocks, as a test sets them.
    """
    if not object_in(folder / "arm.json"):
        return None
    now = now or clocks()
    state = object_in(folder / "clock.json")
    # A count before the last boot says nothing: the seconds since boot began anew.
    has_count = state.get("boot") == now.boot and isinstance(state.get("left_s"), (int, float))
    return {
        "watched": is_held(folder / "lock"),
        # The time left at the last count, less the seconds since then.
        "left_s": state["left_s"] - (now.up - state["up"]) if has_count else None,
        "last": _last_entries(folder / "journal.jsonl"),
    }


def _last_entries(file: Path) -> list[str]:
    """The last entries of the journal without duplicates; [] if it cannot be read."""
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()[-_LINES:]
        return list(dict.fromkeys(str(json_of(line)["what"])[:200] for line in lines))
    except (OSError, ValueError, LookupError, TypeError):
        return []
