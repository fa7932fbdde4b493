"""How slow this machine is, for what is held to an absolute limit of CPU time."""

from __future__ import annotations

import json
import time

#: CPU seconds for reading this document 2,000 times on the machine on which the limits were set.
_DOCUMENT, _DOCUMENT_S = json.dumps([{"n": n, "text": "w" * n} for n in range(100)]), 0.07


def slowness() -> float:
    """How much more CPU time plain Python takes here than where the tests' limits were set: 1 for as much."""
    took = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(2000):
            json.loads(_DOCUMENT)
        took.append(time.process_time() - began)
    return min(took) / _DOCUMENT_S


def in_cpu_time(seconds: float, limit_s: float) -> bool:
    """Tell whether work kept to a limit of CPU time, which is longer on a slower machine; that is measured then."""
    return seconds < limit_s or seconds < limit_s * slowness()
