"""What `profiles/catalog/published.yml` looks like: its types, and the shape of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from ..core.forms import DATE, NAME, Count
from ..core.typed_shape import shape_of

if TYPE_CHECKING:
    from typing import NotRequired

ByDataset = dict[str, Annotated[float, {"low": 0}]]


class FigureSource(TypedDict):
    """Who published figures, where, and when that was read."""

    name: str
    at: str
    date: Annotated[str, {"form": DATE}]


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
    tokens: NotRequired[Count]
    engine: NotRequired[str]
    hardware: NotRequired[str]
    concurrency: NotRequired[Count]
    lengths: NotRequired[ByDataset]
    speedups: NotRequired[ByDataset]


class PublishedFile(TypedDict):
    """The file."""

    sources: Annotated[dict[str, FigureSource], {"names": NAME}]
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


PUBLISHED = shape_of(PublishedFile)
