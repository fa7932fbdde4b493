"""The verdict's headline, and what stands below it in smaller letters. Reports of earlier versions have no headline.

A verdict's ``sentence`` is ``MARKS WORD: SAID``: marks as "synthetic", one of the four words, and what is said of it,
which begins with the ``headline``. Where loads were measured, `report/data/load.py` adds what they show at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.report.report_types import Verdict


def headline_of(verdict: Verdict) -> str:
    """The word and a dozen more, with the marks before them; the whole sentence where there is no headline."""
    first = verdict.get("headline")
    if first is None:
        return verdict["sentence"]
    marks = verdict["sentence"].partition(f"{verdict['word']}: ")[0]
    return f"{marks}{verdict['word']}: {first}"


def below(verdict: Verdict, *, load: bool = False) -> str:
    """The rest of the sentence, with ``load`` also what it says of other loads; "" where there is no headline."""
    first = verdict.get("headline")
    if first is None:
        return ""
    said = verdict["said"]
    if load:
        said = verdict["sentence"].partition(f"{verdict['word']}: ")[2]
    return said.removeprefix(first).lstrip(",;: ")
