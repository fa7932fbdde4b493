"""Whether a kept result is this profile's: a key of all that can change what is measured."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from .experiment_plan import measured_part

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

_SAID_OF_HEADS = ("speculators", "layout")


def measured_key(resolved: ResolvedProfile, *more: object) -> str:
    """Return the key of a result: a hash of all that can change it, and of nothing else.

    ``more`` is what the resolved profile does not hold, such as the box.
    The price, titles and notes may change without a new measurement.
    """
    relevant = {
        # What a shop calls the hardware changes nothing that is measured.
        "hardware": {key: value for key, value in resolved["hardware"].items() if key != "vast_names"},
        "engine": resolved["engine"],
        "target": resolved["target"],
        # What a head's repository asks for where it is served by itself, which no arm does, and how it is written.
        "draft": {key: value for key, value in (resolved["draft"] or {}).items() if key not in _SAID_OF_HEADS} or None,
        "method": resolved["method"],
        "experiment": measured_part(resolved["experiment"]),
        "suites": resolved["suites"],
        "arms": resolved["arms"],
    }
    text = json.dumps([relevant, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
