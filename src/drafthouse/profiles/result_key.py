"""Whether a kept result is this profile's: a key of all that can change what is measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from .experiment_plan import measured_part

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

T = TypeVar("T")
_SAID_OF_HEADS = ("speculators", "layout")


def measured_key(resolved: ResolvedProfile, *more: object) -> str:
    """The key of a result: a hash of all that can change it, and of nothing else.

    ``more`` is what the resolved profile does not hold, such as the box.
    The price, titles and notes may change without a new measurement.
    """
    relevant = {
        # What a shop calls the hardware changes nothing that is measured, nor what is expected of it.
        "hardware": _without(resolved["hardware"], "vast_names", "tflops"),
        "engine": resolved["engine"],
        "target": _without(resolved["target"], "experts"),
        # What a head's repository asks for where it is served by itself, which no arm does, and how it is written.
        "draft": _without(resolved["draft"] or {}, *_SAID_OF_HEADS) or None,
        "method": resolved["method"],
        "experiment": measured_part(resolved["experiment"]),
        "suites": resolved["suites"],
        "arms": resolved["arms"],
    }
    text = json.dumps([relevant, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without(entry: Mapping[str, T], *names: str) -> dict[str, T]:
    return {key: value for key, value in entry.items() if key not in names}
