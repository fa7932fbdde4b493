"""Split a verdict's sentence into a headline and the smaller text below it.

The ``sentence`` is ``MARKS WORD: SAID``: marks such as "synthetic", the verdict's word, and an explanation that begins
with the ``headline`` (not in older reports). If loads were measured, `report/data/load.py` appends a part about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.report.report_types import Verdict


def headline_of(verdict: Verdict) -> str:
    """Marks, word and headline of a verdict; the whole sentence if the report has no headline."""
    headline = verdict.get("headline")
    if headline is None:
        return verdict["sentence"]
    marks = verdict["sentence"].partition(f"{verdict['word']}: ")[0]
    return f"{marks}{verdict['word']}: {headline}"


def below(verdict: Verdict, *, load: bool = False) -> str:
    """The explanation after the headline; "" if the report has no headline.

    ``load`` True: with the part about loads, which only the ``sentence`` has.
    """
    headline = verdict.get("headline")
    if headline is None:
        return ""
    explanation = verdict["said"]
    if load:
        explanation = verdict["sentence"].partition(f"{verdict['word']}: ")[2]
    return explanation.removeprefix(headline).lstrip(",;: ")
