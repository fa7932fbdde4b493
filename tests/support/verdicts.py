"""What a verdict may be on a machine with neighbours: a word that came, and that its own control bears out.

That speculation pays is asserted where a test has the machine to itself (marked `alone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafthouse.analysis.user_clock import slower_to_answer
from drafthouse.analysis.verdict_text import CANNOT_SAY, DOES_NOT_PAY, PAYS


def consistent(report: Mapping[str, Any]) -> str:
    """Return the verdict's word; fails where it is none of a valid comparison, or its own numbers speak against it."""
    verdict = report["verdict"]
    word, speedup, control = verdict["word"], verdict["speedup"], verdict["control"]
    assert word in (PAYS, DOES_NOT_PAY, CANNOT_SAY), verdict["reasons"]
    assert verdict["reasons"]
    assert word in verdict["sentence"]
    ahead = speedup is not None and speedup["low"] > verdict["threshold"]
    # Of a short answer the wait for its first token is a large part.
    slow = slower_to_answer(verdict["user_clock"], verdict["threshold"])
    if word == PAYS:
        assert ahead, speedup
        assert not slow, slow
        assert not verdict["wrong_output"]
        # What the baseline differs from itself does not reach as far as the effect.
        reach = max(control["high"], 1 / control["low"]) if control else 1.0
        assert reach < speedup["median"], (control, speedup)
    if word == DOES_NOT_PAY:
        assert verdict["wrong_output"] or slow or not ahead, speedup
    if word == CANNOT_SAY:
        assert "noisy" in verdict["said"], verdict["said"]
    return str(word)
