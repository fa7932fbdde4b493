"""The key of a result: a kept result with the same key is used instead of a new measurement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from .experiment_plan import measured_part

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

T = TypeVar("T")
#: Keys of a head's entry that only matter to an engine that is given the head as if it were the target.
_HEAD_FORMAT_KEYS = ("speculators", "layout")


def measured_key(resolved: ResolvedProfile, *more: object) -> str:
    """16 hex digits that identify all that can change a result, and nothing else: not price, title or notes.

    ``more``: facts that the resolved profile does not have, such as those of the box.
    """
    relevant = {
        # Neither the name under which the hardware is rented nor its data sheet's peak changes a measurement.
        "hardware": _without(resolved["hardware"], "vast_names", "tflops"),
        "engine": resolved["engine"],
        "target": _without(resolved["target"], "experts"),
        # No arm serves a head by itself, so the format and the settings in its repository do not matter.
        "draft": _without(resolved["draft"] or {}, *_HEAD_FORMAT_KEYS) or None,
        "method": resolved["method"],
        "experiment": measured_part(resolved["experiment"]),
        "suites": resolved["suites"],
        "arms": resolved["arms"],
    }
    text = json.dumps([relevant, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without(entry: Mapping[str, T], *names: str) -> dict[str, T]:
    """A copy of the entry without the keys ``names``."""
    return {key: value for key, value in entry.items() if key not in names}
