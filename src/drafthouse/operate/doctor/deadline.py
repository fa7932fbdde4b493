"""The doctor's look at a rented box's watch over its deadline: whether one looks, and what it came to.

Only what is rented has an order there; of any other box nothing is said. Standard library only: it is read on the box.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...addons.watchdog.switch import is_held
from ...cloud.deadline import FOLDER
from ...core.documents import json_of
from ...core.format import count
from ...core.procfs import Clocks, clocks
from .check import Check, fail, ok

if TYPE_CHECKING:
    from .types import DeadlineFacts

# Of the journal's end: what the watch asked for last, and what was said to that.
_LINES = 3


def read_watch(folder: Path = Path(FOLDER), now: Clocks | None = None) -> DeadlineFacts | None:
    """Return the watch of the box, None where it has no deadline (or is not ours to look at)."""
    if not _object(folder / "arm.json"):
        return None
    state, now = _object(folder / "clock.json"), now or clocks()
    counted = state.get("boot") == now.boot and isinstance(state.get("left_s"), (int, float))
    return {
        "watched": is_held(folder / "lock"),
        "left_s": state["left_s"] - (now.up - state["up"]) if counted else None,
        "last": _last_words(folder / "journal.jsonl"),
    }


def deadline_checks(found: DeadlineFacts | None) -> list[Check]:
    """Return the check of what `read_watch` found; [] where there is nothing to watch."""
    if found is None:
        return []
    name, needed, left_s = "deadline", "a watch that ends this box when its time is over", found["left_s"]
    if left_s is not None and left_s <= 0:
        said = "; ".join(found["last"]) or "nothing was written down"
        late = f"{-left_s / 60:.0f} min past, and this box is still here ({said})"
        return [fail(name, late, "a box that is destroyed by now", "make destroy: it is billed")]
    if not found["watched"]:
        return [fail(name, "nobody watches over it", needed, "run playbooks/host.yml")]
    shown = "the watch has not counted yet" if left_s is None else f"this box ends itself in {_time(left_s)}"
    return [ok(name, shown, needed)]


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else count(int(seconds // 60), "minute")


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json_of(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_words(file: Path) -> list[str]:
    """Return what the journal says last, each thing once."""
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()[-_LINES:]
        return list(dict.fromkeys(str(json_of(line)["what"])[:200] for line in lines))
    except (OSError, ValueError, LookupError, TypeError):
        return []
