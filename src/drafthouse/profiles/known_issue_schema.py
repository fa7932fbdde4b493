"""The shape of `profiles/catalog/known-issues.yml`, a list of engines' reported bugs, and its types."""

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
    """A range of numbers; neither bound is part of it."""

    above: NotRequired[float]
    below: NotRequired[float]


_Not = TypedDict("_Not", {"not": "NotRequired[list[str]]", "is": "NotRequired[list[str]]"})


class Setting(Bounds, _Not):
    """A condition on a server's setting. ``given``: it must be set, or not; ``default``: its value if it is not set."""

    given: NotRequired[bool]
    default: NotRequired[str]


class ModelNamed(TypedDict):
    """A condition on a model: any of ``traits``, and ``named``, a regular expression for one of its names."""

    traits: NotRequired[list[Trait]]
    named: NotRequired[str]


class DraftNamed(ModelNamed):
    """A condition on the draft; ``kinds``: any of these."""

    kinds: NotRequired[list[DraftKind]]


class HardwareNamed(TypedDict):
    """A condition on the hardware; ``capabilities``: compute capabilities; ``memory_mib``: of one device."""

    kinds: NotRequired[list[Literal["cpu", "gpu"]]]
    capabilities: NotRequired[list[str]]
    named: NotRequired[str]
    devices: NotRequired[Bounds]
    memory_mib: NotRequired[Bounds]


class When(TypedDict):
    """The conditions of an issue, all of which must hold; ``settings``: by the names of `started.settings_of`."""

    methods: NotRequired[list[str]]
    draft: NotRequired[DraftNamed]
    target: NotRequired[ModelNamed]
    tokens: NotRequired[Bounds]
    hardware: NotRequired[HardwareNamed]
    settings: NotRequired[dict[str, Setting]]


class IssueText(TypedDict):
    """The effect of an issue; ``uncertain``: its unconfirmed part; ``checked``: when its threads were last read."""

    what: str
    effect: Effect
    silent: bool
    uncertain: NotRequired[str]
    signature: NotRequired[str]
    do: str
    threads: list[str]
    checked: Annotated[str, {"form": DATE}]


class KnownIssue(IssueText, Versioned):
    """An issue of the file, limited to versions of ``engine``."""

    engine: str
    when: When


class ToCome(TypedDict):
    """Engines and methods that issues may name, although the catalogue does not have them yet."""

    engines: list[str]
    methods: list[str]


class KnownIssues(TypedDict):
    """The whole file."""

    to_come: ToCome
    issues: Annotated[dict[str, KnownIssue], {"names": NAME}]


class MatchedIssue(TypedDict):
    """A known issue that affects a profile; ``accepted``: why the profile accepts it, None if it does not."""

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
