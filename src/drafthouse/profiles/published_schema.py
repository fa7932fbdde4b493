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
    """A source of figures: who published them (``name``), their URL (``at``), and when they were read (``date``)."""

    name: str
    at: str
    date: Annotated[str, {"form": DATE}]


class PublishedModel(TypedDict):
    """A target: its name for people, and ``named``, a regular expression for its names in the catalogue."""

    name: str
    named: str


class PublishedDraft(TypedDict):
    """A draft, as `PublishedModel`; without ``named`` it is any draft of the method."""

    name: str
    named: NotRequired[str]


class PublishedRow(TypedDict):
    """A published measurement: acceptance lengths and speed-ups over the baseline, by data set; ``tokens`` is K."""

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
    """The whole file."""

    sources: Annotated[dict[str, FigureSource], {"names": NAME}]
    figures: list[PublishedRow]


class PublishedFigure(TypedDict):
    """A published figure for a profile's target on one data set; ``same_draft``: measured with the profile's draft."""

    dataset: str
    draft: str
    same_draft: bool
    tokens: int | None  # K
    length: float | None  # mean acceptance length
    speedup: float | None  # over the baseline
    engine: str | None
    hardware: str | None
    concurrency: int | None
    source: str
    date: str


PUBLISHED = shape_of(PublishedFile)
