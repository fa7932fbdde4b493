"""Figures that others published for a profile's target; the report shows them beside its own."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean
from ..core.schema import Findings
from .model_names import names_of

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import CatalogModel
    from drafthouse.profiles.published_schema import FigureSource, PublishedFigure, PublishedFile, PublishedRow

FILE = "profiles/catalog/published.yml"
#: The most figures of a profile. They are part of the resolved profile, which must stay small.
MOST = 10
#: A catalogue without published figures.
NOTHING: PublishedFile = {"sources": {}, "figures": []}


def check_published(file: PublishedFile) -> Findings:
    """The problems of the file's rows beyond their shape."""
    findings = Findings(FILE)
    for index, measurement in enumerate(file["figures"]):
        path = f"figures[{index}]"
        if (source := measurement["source"]) not in file["sources"]:
            needed = f"one of: {', '.join(file['sources'])}"
            do = did_you_mean(source, file["sources"])
            findings.add("unknown-value", f"{path}.source", repr(source), needed, do)
        for expression in (measurement["target"]["named"], measurement["draft"].get("named", "")):
            try:
                re.compile(expression)
            except re.error as error:
                findings.add("wrong-format", path, f"{expression!r}: {error}", "a regular expression", "correct it")
    return findings


def published_of(
    file: PublishedFile, target: CatalogModel, draft: CatalogModel | None, method: str, tokens: int
) -> list[PublishedFigure]:
    """The published figures of a target, one for each data set of a measurement, at most `MOST`.

    Those with the profile's draft and method come first, among them those with its K, ``tokens``. Figures with other
    drafts and methods are included, as they show what is possible.
    """
    figures = []
    for measurement in file["figures"]:
        if _matches(measurement["target"]["named"], names_of(target)):
            source = file["sources"][measurement["source"]]
            same_draft = _is_draft(measurement, draft, method)
            for dataset in dict.fromkeys([*measurement.get("lengths", {}), *measurement.get("speedups", {})]):
                figures.append(_figure(measurement, source, dataset, same_draft))
    figures.sort(key=lambda figure: (not figure["same_draft"], figure["tokens"] != tokens))
    return figures[:MOST]


def _is_draft(measurement: PublishedRow, draft: CatalogModel | None, method: str) -> bool:
    """True if a measurement is of the profile's method, and of its draft or of any draft of that method."""
    if method not in measurement["methods"]:
        return False
    named = measurement["draft"].get("named")
    return named is None or (draft is not None and _matches(named, names_of(draft)))


def _matches(expression: str, names: Collection[str]) -> bool:
    """True if a regular expression is found in one of the names."""
    return any(re.search(expression, name) for name in names)


def _figure(measurement: PublishedRow, source: FigureSource, dataset: str, same_draft: bool) -> PublishedFigure:
    """The figure of a measurement on one of its data sets."""
    return {
        "dataset": dataset,
        "draft": measurement["draft"]["name"],
        "same_draft": same_draft,
        "tokens": measurement.get("tokens"),
        "length": measurement.get("lengths", {}).get(dataset),
        "speedup": measurement.get("speedups", {}).get(dataset),
        "engine": measurement.get("engine"),
        "hardware": measurement.get("hardware"),
        "concurrency": measurement.get("concurrency"),
        "source": source["name"],
        "date": source["date"],
    }
