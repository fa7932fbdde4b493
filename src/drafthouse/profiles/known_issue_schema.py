"""What `profiles/catalog/known-issues.yml` looks like: its types, and the shape that checks the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from ..core.schema import List, Map, Shape, Table, Value
from ..engines.entry_types import DraftKind, Versioned
from .catalog_types import TRAITS, Trait
from .forms import DATE, NAME, VERSION

if TYPE_CHECKING:
    from typing import NotRequired

Effect = Literal["wrong", "crash", "hang", "oom", "slow", "refused"]
_EFFECTS = ("wrong", "crash", "hang", "oom", "slow", "refused")
_DRAFT_KINDS = ("builtin", "head", "lookup", "model")


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
    checked: str


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
    issues: dict[str, KnownIssue]


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


_TEXT, _NEEDED_TEXT = Value(str), Value(str, required=True)
_NUMBERS: dict[str, Shape] = {"above": Value(float), "below": Value(float)}
_MODEL: dict[str, Shape] = {"traits": List(Value(str, choices=TRAITS)), "named": _TEXT}
_WHEN = Map(
    {
        "methods": List(_TEXT),
        "draft": Map({"kinds": List(Value(str, choices=_DRAFT_KINDS)), **_MODEL}),
        "target": Map(_MODEL),
        "tokens": Map(_NUMBERS),
        "hardware": Map(
            {
                "kinds": List(Value(str, choices=("cpu", "gpu"))),
                "capabilities": List(_TEXT),
                "named": _TEXT,
                "devices": Map(_NUMBERS),
                "memory_mib": Map(_NUMBERS),
            }
        ),
        "settings": Table(
            Map({"given": Value(bool), "is": List(_TEXT), "not": List(_TEXT), "default": _TEXT, **_NUMBERS})
        ),
    },
    required=True,
)
_BOUND = Value(form=VERSION)
KNOWN_ISSUES = Map(
    {
        "to_come": Map({"engines": List(_TEXT, required=True), "methods": List(_TEXT, required=True)}, required=True),
        "issues": Table(
            Map(
                {
                    "engine": _NEEDED_TEXT,
                    "since": _BOUND,
                    "until": _BOUND,
                    "except": Map(
                        {"since": Value(required=True, form=VERSION), "until": Value(required=True, form=VERSION)}
                    ),
                    "when": _WHEN,
                    "what": _NEEDED_TEXT,
                    "effect": Value(str, required=True, choices=_EFFECTS),
                    "silent": Value(bool, required=True),
                    "uncertain": _TEXT,
                    "signature": _TEXT,
                    "do": _NEEDED_TEXT,
                    "threads": List(_TEXT, required=True),
                    "checked": Value(required=True, form=DATE),
                }
            ),
            required=True,
            names=NAME,
        ),
    }
)
