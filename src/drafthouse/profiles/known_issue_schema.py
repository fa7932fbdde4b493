"""What `profiles/catalog/known-issues.yml` looks like: its types, and the shape of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from ..core.forms import DATE, NAME
from ..core.typed_shape import shape_of
from ..engines.entry_types import DraftKind, Versioned
from .catalog_types import Trait

if TYPE_CHECKING:
    from typing import NotRequired

Effect = Literal["wrong", "crash", "hang", "oom", "slow", "refused"]


class Bounds(TypedDict):
    """Numbers above one, below another, neither of which is among them."""

    above: NotRequired[float]
    below: NotRequired[float]


_Not = TypedDict("_Not", {"not": "NotRequired[list[str]]", "is": "NotRequired[list[str]]"})


class Setting(Bounds, _Not):
    """What a setting of the started server must be; ``default`` is what it counts as where it is not given."""

    given: NotRequired[bool]
    default: NotRequired[str]


class ModelNamed(TypedDict):
    """A model by what it is (any of ``traits``), and by a regular expression over its names."""

    traits: NotRequired[list[Trait]]
    named: NotRequired[str]


class DraftNamed(ModelNamed):
    """A draft, by its kind too."""

    kinds: NotRequired[list[DraftKind]]


class HardwareNamed(TypedDict):
    """Hardware; memory is that of one device."""

    kinds: NotRequired[list[Literal["cpu", "gpu"]]]
    capabilities: NotRequired[list[str]]
    named: NotRequired[str]
    devices: NotRequired[Bounds]
    memory_mib: NotRequired[Bounds]


class When(TypedDict):
    """With what an issue shows: all that is said must be so. ``settings``: as the server is started."""

    methods: NotRequired[list[str]]
    draft: NotRequired[DraftNamed]
    target: NotRequired[ModelNamed]
    tokens: NotRequired[Bounds]
    hardware: NotRequired[HardwareNamed]
    settings: NotRequired[dict[str, Setting]]


class IssueText(TypedDict):
    """What an issue does to its user. ``uncertain`` is what of it was not seen, ``checked`` when it was last read."""

    what: str
    effect: Effect
    silent: bool
    uncertain: NotRequired[str]
    signature: NotRequired[str]
    do: str
    threads: list[str]
    checked: Annotated[str, {"form": DATE}]


class KnownIssue(IssueText, Versioned):
    """A row of the file."""

    engine: str
    when: When


class ToCome(TypedDict):
    """Words of rows that the catalogue does not have yet."""

    engines: list[str]
    methods: list[str]


class KnownIssues(TypedDict):
    """The file."""

    to_come: ToCome
    issues: Annotated[dict[str, KnownIssue], {"names": NAME}]


class MatchedIssue(TypedDict):
    """A known issue that a profile runs into (`known_issues.matching`); ``accepted``: why it does so all the same."""

    id: str
    what: str
    effect: Effect
    silent: bool
    uncertain: str | None
    signature: str | None
    do: str
    threads: list[str]
    checked: str
    accepted: str | None


KNOWN_ISSUES = shape_of(KnownIssues)
