"""What a verdict may be on a machine with neighbours: a word that came, and that its own control bears out.

That speculation pays is asserted where a test has the machine to itself (marked `alone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafthouse.analysis.words import CANNOT_SAY, DOES_NOT_PAY, PAYS


def consistent(report: Mapping[str, Any]) -> str:
    """The verdict's word; fails where it is none of a valid comparison, or its own numbers speak against it."""
    verdict = report["verdict"]
    word, speedup, control = verdict["word"], verdict["speedup"], verdict["control"]
    assert word in (PAYS, DOES_NOT_PAY, CANNOT_SAY), verdict["reasons"]
    assert verdict["reasons"]
    assert word in verdict["sentence"]
    ahead = speedup is not None and speedup["low"] > verdict["threshold"]
    seconds = verdict["seconds"]
    less = seconds is not None and seconds["low"] > 1.0 and min(seconds["by_temperature"].values()) > 1.0
    if word == PAYS:
        assert ahead, speedup
        assert less, seconds
        assert not verdict["wrong_output"]
        # What the baseline differs from itself stands in the sentence where it reaches as far as the lower bound.
        reach = max(control["high"], 1 / control["low"]) if control else 1.0
        assert speedup["low"] > reach or "the range of the baseline against itself" in verdict["said"]
    if word == DOES_NOT_PAY:
        small = speedup is not None and speedup["high"] < 1.10
        assert verdict["wrong_output"] or small or (seconds and seconds["high"] < 1.0), speedup
    if word == CANNOT_SAY:
        assert verdict["next_round"], verdict["said"]
    return str(word)
