"""The shape of `profiles/catalog/known-issues.yml`, a list of engines' reported bugs, and its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from ..core.forms import DATE, NAME
from ..core.typed_shape import shape_of
from ..engines.entry_types import DraftKind, Versioned
from .catalog_types import Trait

if TYPE_CHECKING:
    from typing import NotRequired

#: Wrong answers, a crash, a hang, out of memory, slow, a setting that is refused or ignored.
Effect = Literal["wrong", "crash", "hang", "oom", "slow", "refused"]


class Bounds(TypedDict):
    """A range of numbers; neither bound is part of it."""

    above: NotRequired[float]
    below: NotRequired[float]


_Not = TypedDict("_Not", {"not": "NotRequired[list[str]]", "is": "NotRequired[list[str]]"})


class Setting(Bounds, _Not):
    """A condition on a server's setting: its value is one of ``is``, none of ``not``, and within the bounds."""

    given: NotRequired[bool]  # it must be set, or must not
    default: NotRequired[str]  # its value if it is not set


class ModelNamed(TypedDict):
    """A condition on a model."""

    traits: NotRequired[list[Trait]]  # it has any of these
    named: NotRequired[str]  # regular expression that is found in one of its names


class DraftNamed(ModelNamed):
    """A condition on the draft."""

    kinds: NotRequired[list[DraftKind]]  # any of these


class HardwareNamed(TypedDict):
    """A condition on the hardware."""

    kinds: NotRequired[list[Literal["cpu", "gpu"]]]  # any of these
    capabilities: NotRequired[list[str]]  # any of these compute capabilities
    named: NotRequired[str]  # regular expression that is found in its name
    devices: NotRequired[Bounds]  # number of devices
    memory_mib: NotRequired[Bounds]  # of one device


class When(TypedDict):
    """The conditions of an issue, all of which must hold; a missing one always holds."""

    methods: NotRequired[list[str]]  # any of these
    draft: NotRequired[DraftNamed]
    target: NotRequired[ModelNamed]
    tokens: NotRequired[Bounds]  # K
    hardware: NotRequired[HardwareNamed]
    settings: NotRequired[dict[str, Setting]]  # by the names of `started.settings_of`


class IssueText(TypedDict):
    """What an issue is, and what to do."""

    what: str
    effect: Effect
    silent: bool  # the engine reports nothing when it happens
    uncertain: NotRequired[str]  # what of it is not confirmed
    signature: NotRequired[str]  # regular expression for the engine's log
    do: str
    threads: list[str]  # where it was reported
    checked: Annotated[str, {"form": DATE}]  # when the threads were last read


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
    """A known issue that affects a profile; the fields of `IssueText`, None where the file has none."""

    id: str  # its name in the file
    what: str
    effect: Effect
    silent: bool
    uncertain: str | None
    signature: str | None
    do: str
    threads: list[str]
    checked: str
    accepted: str | None  # why the profile accepts it; None if it does not


KNOWN_ISSUES = shape_of(KnownIssues)
