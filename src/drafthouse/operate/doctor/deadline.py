"""Reads on the box the state of the deadline watch, the program that destroys a rental when its time is over.

Only a rented box has the watch's order (arm.json). Standard library only: it runs with the Python of the box.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...addons.watchdog.switch import is_held
from ...cloud.deadline import FOLDER
from ...core.documents import json_of
from ...core.files import object_in
from ...core.procfs import Clocks, clocks

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DeadlineFacts

# Number of journal lines to read, from the end: the watch's last requests and their results.
_LINES = 3


def read_watch(folder: Path = Path(FOLDER), now: Clocks | None = None) -> DeadlineFacts | None:
    """The state of the box's watch; None if the box has no deadline, or the user may not read it."""
    if not object_in(folder / "arm.json"):
        return None
    state, now = object_in(folder / "clock.json"), now or clocks()
    has_count = state.get("boot") == now.boot and isinstance(state.get("left_s"), (int, float))
    return {
        "watched": is_held(folder / "lock"),
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
