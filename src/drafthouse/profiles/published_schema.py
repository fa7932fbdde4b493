"""The shape of `profiles/catalog/published.yml`, which has other people's published measurements, and its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from ..core.forms import DATE, NAME, Count
from ..core.typed_shape import shape_of

if TYPE_CHECKING:
    from typing import NotRequired

#: A figure by the name of a data set.
ByDataset = dict[str, Annotated[float, {"low": 0}]]


class FigureSource(TypedDict):
    """A source of figures."""

    name: str  # who published them
    at: str  # URL
    date: Annotated[str, {"form": DATE}]  # when they were read


class PublishedModel(TypedDict):
    """A target."""

    name: str  # for people
    named: str  # regular expression; a model is this target if it is found in one of its names in the catalogue


class PublishedDraft(TypedDict):
    """A draft, as `PublishedModel`; without ``named`` it is any draft of the method."""

    name: str
    named: NotRequired[str]


class PublishedRow(TypedDict):
    """A published measurement. A missing key: the source does not say."""

    source: str  # a key of the file's `sources`
    target: PublishedModel
    draft: PublishedDraft
    methods: list[str]  # methods of the catalogue that draft in this way
    tokens: NotRequired[Count]  # K
    engine: NotRequired[str]  # as the source names it
    hardware: NotRequired[str]
    concurrency: NotRequired[Count]  # requests at once
    lengths: NotRequired[ByDataset]  # mean acceptance lengths, in tokens per step
    speedups: NotRequired[ByDataset]  # over the baseline: 2 is twice as fast


class PublishedFile(TypedDict):
    """The whole file."""

    sources: Annotated[dict[str, FigureSource], {"names": NAME}]
    figures: list[PublishedRow]


class PublishedFigure(TypedDict):
    """A published figure for a profile's target on one data set. None: the source does not say."""

    dataset: str
    draft: str  # its name for people
    same_draft: bool  # measured with the profile's method and draft
    tokens: int | None  # K
    length: float | None  # mean acceptance length, in tokens per step
    speedup: float | None  # over the baseline
    engine: str | None
    hardware: str | None
    concurrency: int | None  # requests at once
    source: str  # who published it
    date: str  # when it was read


PUBLISHED = shape_of(PublishedFile)
