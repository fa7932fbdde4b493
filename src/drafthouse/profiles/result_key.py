"""Whether a kept result is this profile's: a key of all that can change what is measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .experiment_plan import measured_part


def measured_key(resolved: Mapping[str, Any], *more: object) -> str:
    """Return the key of a result: a hash of all that can change it, and of nothing else.

    ``more`` is what the resolved profile does not hold, such as the box.
    The price, titles and notes may change without a new measurement.
    """
    parts = ("hardware", "engine", "target", "draft", "method", "experiment", "suites", "arms")
    relevant = {part: resolved[part] for part in parts}
    relevant["experiment"] = measured_part(resolved["experiment"])
    # What a shop calls the hardware changes nothing that is measured.
    relevant["hardware"] = {key: value for key, value in resolved["hardware"].items() if key != "vast_names"}
    text = json.dumps([relevant, *more], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
