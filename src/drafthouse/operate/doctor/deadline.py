"""What the doctor reads of a rented box's watch over its deadline: whether one looks, and what it came to.

Only what is rented has an order there; of any other box nothing is said. Standard library only: it is read on the box.
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

# Of the journal's end: what the watch asked for last, and what was said to that.
_LINES = 3


def read_watch(folder: Path = Path(FOLDER), now: Clocks | None = None) -> DeadlineFacts | None:
    """The watch of the box, None where it has no deadline (or is not ours to look at)."""
    if not object_in(folder / "arm.json"):
        return None
    state, now = object_in(folder / "clock.json"), now or clocks()
    counted = state.get("boot") == now.boot and isinstance(state.get("left_s"), (int, float))
    return {
        "watched": is_held(folder / "lock"),
        "left_s": state["left_s"] - (now.up - state["up"]) if counted else None,
        "last": _last_words(folder / "journal.jsonl"),
    }


def _last_words(file: Path) -> list[str]:
    """What the journal says last, each thing once."""
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()[-_LINES:]
        return list(dict.fromkeys(str(json_of(line)["what"])[:200] for line in lines))
    except (OSError, ValueError, LookupError, TypeError):
        return []
