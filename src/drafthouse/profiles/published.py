"""What others published of a profile's target: looked up for its report. Pure."""

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
#: They travel with the profile, which has to stay small.
MOST = 10
#: A catalogue without any.
NOTHING: PublishedFile = {"sources": {}, "figures": []}


def check_published(file: PublishedFile) -> Findings:
    """What is wrong with the rows beside their shape."""
    findings = Findings(FILE)
    for number, row in enumerate(file["figures"]):
        path = f"figures[{number}]"
        if (source := row["source"]) not in file["sources"]:
            needed, do = f"one of: {', '.join(file['sources'])}", did_you_mean(source, file["sources"])
            findings.add("unknown-value", f"{path}.source", repr(source), needed, do)
        for expression in (row["target"]["named"], row["draft"].get("named", "")):
            try:
                re.compile(expression)
            except re.error as error:
                findings.add("wrong-format", path, f"{expression!r}: {error}", "a regular expression", "correct it")
    return findings


def published_of(
    file: PublishedFile, target: CatalogModel, draft: CatalogModel | None, method: str, tokens: int
) -> list[PublishedFigure]:
    """What was published of a target, a row for each data set: what is nearest to the profile first, `MOST`.

    ``tokens`` is its K. Of other drafts and methods too: what they reach says what could be reached.
    """
    found = []
    for row in file["figures"]:
        if _has(row["target"]["named"], names_of(target)):
            source, same_draft = file["sources"][row["source"]], _is_draft(row, draft, method)
            for dataset in dict.fromkeys([*row.get("lengths", {}), *row.get("speedups", {})]):
                found.append(_figure(row, source, dataset, same_draft))
    found.sort(key=lambda one: (not one["same_draft"], one["tokens"] != tokens))
    return found[:MOST]


def _is_draft(row: PublishedRow, draft: CatalogModel | None, method: str) -> bool:
    if method not in row["methods"]:
        return False
    named = row["draft"].get("named")
    return named is None or (draft is not None and _has(named, names_of(draft)))


def _has(expression: str, names: Collection[str]) -> bool:
    return any(re.search(expression, name) for name in names)


def _figure(row: PublishedRow, source: FigureSource, dataset: str, same_draft: bool) -> PublishedFigure:
    return {
        "dataset": dataset,
        "draft": row["draft"]["name"],
        "same_draft": same_draft,
        "tokens": row.get("tokens"),
        "length": row.get("lengths", {}).get(dataset),
        "speedup": row.get("speedups", {}).get(dataset),
        "engine": row.get("engine"),
        "hardware": row.get("hardware"),
        "concurrency": row.get("concurrency"),
        "source": source["name"],
        "date": source["date"],
    }
