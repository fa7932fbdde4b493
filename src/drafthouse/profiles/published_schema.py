"""What `profiles/catalog/published.yml` looks like: its types, and the shape that checks the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..core.schema import List, Map, Table, Value
from .forms import DATE, NAME

if TYPE_CHECKING:
    from typing import NotRequired


class FigureSource(TypedDict):
    """Who published figures, where, and when that was read."""

    name: str
    at: str
    date: str


class PublishedModel(TypedDict):
    """A target: its name for people, and a regular expression over the names of a model of the catalogue."""

    name: str
    named: str


class PublishedDraft(TypedDict):
    """What drafted; without ``named`` whatever the method drafts with."""

    name: str
    named: NotRequired[str]


class PublishedRow(TypedDict):
    """What one measurement of others gave, by data set: acceptance lengths, and speed-ups over no speculation."""

    source: str
    target: PublishedModel
    draft: PublishedDraft
    methods: list[str]
    tokens: NotRequired[int]
    engine: NotRequired[str]
    hardware: NotRequired[str]
    concurrency: NotRequired[int]
    lengths: NotRequired[dict[str, float]]
    speedups: NotRequired[dict[str, float]]


class PublishedFile(TypedDict):
    """The file."""

    sources: dict[str, FigureSource]
    figures: list[PublishedRow]


class PublishedFigure(TypedDict):
    """What was published of a profile's target on one data set; ``same_draft``: with the profile's own draft."""

    dataset: str
    draft: str
    same_draft: bool
    tokens: int | None
    length: float | None
    speedup: float | None
    engine: str | None
    hardware: str | None
    concurrency: int | None
    source: str
    date: str


_TEXT, _NEEDED_TEXT, _COUNT = Value(str), Value(str, required=True), Value(int, low=1)
_BY_DATASET = Table(Value(float, low=0))
PUBLISHED = Map(
    {
        "sources": Table(
            Map({"name": _NEEDED_TEXT, "at": _NEEDED_TEXT, "date": Value(required=True, form=DATE)}),
            required=True,
            names=NAME,
        ),
        "figures": List(
            Map(
                {
                    "source": _NEEDED_TEXT,
                    "target": Map({"name": _NEEDED_TEXT, "named": _NEEDED_TEXT}, required=True),
                    "draft": Map({"name": _NEEDED_TEXT, "named": _TEXT}, required=True),
                    "methods": List(_TEXT, required=True),
                    "tokens": _COUNT,
                    "engine": _TEXT,
                    "hardware": _TEXT,
                    "concurrency": _COUNT,
                    "lengths": _BY_DATASET,
                    "speedups": _BY_DATASET,
                }
            ),
            required=True,
        ),
    }
)
