"""What a pasted command becomes on the way from old words to those of today: shared by all that read one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..core.errors import one_problem

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.engines.entry_types import EngineEntry, Options, Settings


class OldRule(TypedDict):
    """What became of a flag, a key or a variable, and since when; ``became`` is there where it was renamed."""

    kind: Literal["removed", "renamed", "moved", "ignored"]
    became: NotRequired[str]
    value: NotRequired[str]
    values: NotRequired[dict[str, str]]
    invert: NotRequired[bool]
    when_false: NotRequired[str]
    takes: NotRequired[Literal["switch"]]
    version: str
    note: NotRequired[str]
    secret: NotRequired[bool]
    source: NotRequired[str]


class NewValue(TypedDict):
    """What a value is called today."""

    became: str
    version: str


class NewProgram(NewValue):
    """What a program is called today."""

    note: NotRequired[str]


class ModelBehind(TypedDict):
    """A program that takes its model behind its name since a version."""

    program: str
    version: str
    note: str


class OptionalWord(TypedDict):
    """A flag that takes one of these words, and what it meant alone."""

    words: list[str]
    alone: str
    version: str


class FlagStyle(TypedDict):
    """How an engine's flags are written; ``abbreviates``: the beginning of one stands for it (Python's argparse)."""

    style: Literal["-", "_"]
    short: dict[str, str]
    switches: list[str]
    several: list[str]
    optional: NotRequired[dict[str, OptionalWord]]
    abbreviates: NotRequired[bool]


class FlagWords(FlagStyle):
    """How they are read: ``known`` are all of a version, ``gone`` those of older ones."""

    known: NotRequired[list[str]]
    gone: NotRequired[list[str]]


class FlagTable(FlagStyle):
    """An engine's flags, and what became of old ones: `profiles/catalog/old_flags/<engine>.yml`.

    Of flags in ``appends`` every one counts, not the last; ``variables`` are those whose name is not their flag's.
    """

    model_behind: NotRequired[ModelBehind]
    secret: list[str]
    config: NotRequired[str]
    appends: NotRequired[list[str]]
    variables: NotRequired[dict[str, str]]
    programs: dict[str, NewProgram]
    old: dict[str, OldRule]
    keys: dict[str, OldRule]
    values: dict[str, dict[str, NewValue]]
    environment: dict[str, OldRule]


class FlagsToday(FlagTable):
    """Such a table with what is known of a version's own flags, as in `FlagWords`."""

    known: NotRequired[list[str]]
    gone: NotRequired[list[str]]


@dataclass(frozen=True)
class Given:
    """One flag as given: ``spelled`` as typed, ``name`` the long one without dashes ('' for a bare word)."""

    spelled: str
    name: str
    value: Any  # str, list of str, True, False

    @property
    def flag(self) -> str:
        """The long flag, with its dashes; an unknown short one stays as it is."""
        if self.name.startswith("-"):
            return self.name
        return f"--{self.name}"


@dataclass(frozen=True)
class Change:
    """What became of one thing that was pasted. ``version`` is '-' where no version changed it."""

    what: str
    became: str
    version: str
    why: str
    kind: str

    def as_dict(self) -> dict[str, str]:
        """The change as plain data."""
        return asdict(self)


@dataclass
class Speculation:
    """What a command says of speculation. ``tokens`` is None where it leaves their number out."""

    method: str
    draft: str
    tokens: int | None
    words: Settings  # in the engine's own words of today
    options: Options = field(default_factory=dict)  # in a profile's words
    unknown: list[str] = field(default_factory=list)  # keys that the catalogue does not know

    def sorted(
        self,
        names: Mapping[str, str],
        known: Sequence[str],
        read: Callable[[Any], Any] = lambda value: value,
        prefix: str = "",
    ) -> Speculation:
        """Itself, each word put into ``options`` where ``names`` has a profile's word for it, else ``unknown``.

        ``known`` are words that are neither, ``read`` makes a value of a word's, ``prefix`` goes before unknown ones.
        """
        for key, value in self.words.items():
            if key in names:
                self.options[names[key]] = read(value)
            elif key not in known:
                self.unknown.append(f"{prefix}{key}")
        return self


@dataclass
class Command:
    """A command half read: its flags are today's, and its engine takes the speculation out of it.

    ``before`` are the names of the flags as they were typed. ``taken`` is what `Engine.take_speculation` took,
    ``config`` the settings of the file that the command names, with dotted keys. ``engine`` is the catalogue's entry
    and ``table`` that of the old flags; ``guess`` names the method for a draft where the command does not. ``target``
    is the model, as it was typed.
    """

    given: list[Given]
    before: frozenset[str]
    engine: EngineEntry
    table: FlagTable
    changes: list[Change]
    guess: Callable[[str], str]
    taken: Settings = field(default_factory=dict)
    config: Settings = field(default_factory=dict)
    target: str = ""

    @property
    def version(self) -> str:
        """The version of today."""
        return self.engine["default_version"]

    def note(self, what: str, became: str, why: str, kind: str, version: str = "-") -> None:
        """Record what became of one thing."""
        self.changes.append(Change(what, became, version, why, kind))

    def take(self, prefix: str) -> list[Given]:
        """The flags whose names begin with ``prefix``, taken out of ``given``."""
        taken, rest = [], []
        for flag in self.given:
            if flag.name.startswith(prefix):
                taken.append(flag)
            else:
                rest.append(flag)
        self.given = rest
        return taken

    def names(self, method: str) -> dict[str, str]:
        """A profile's words for what every method has -> the engine's, for this one."""
        entry = self.engine["methods"].get(method)
        return entry["names"] if entry else {}

    def option_names(self, method: str) -> dict[str, str]:
        """The engine's words for the options of a method -> a profile's."""
        entry = self.engine["methods"].get(method)
        if entry is None:
            return {}
        return {option["name"]: key for key, option in entry.get("options", {}).items()}

    def method_named(self, word: str, settings: Settings) -> str:
        """The catalogue's method for an engine's word, beside which ``settings`` stand; else the word itself."""
        for key, entry in self.engine["methods"].items():
            always = entry.get("always", {})
            if always and entry.get("value", key) == word and always.items() <= settings.items():
                return key
        return word


def apply_keys(settings: Settings, table: FlagTable, changes: list[Change], where: str) -> Settings:
    """A flat table of settings (dotted keys) with today's keys; what changed goes to ``changes``."""
    result: Settings = {}
    for given_key, given_value in settings.items():
        key, value = given_key, given_value
        head, dot, rest = key.partition(".")
        level = table["keys"].get(head) if dot else None
        if level and level.get("became") == "":  # a level that is gone: its keys stand one higher
            why = level.get("note", "")
            changes.append(Change(f"{where}: {key}", rest, level["version"], why, "renamed"))
            key = rest
        rule = table["keys"].get(key)
        if rule is None:
            result[key] = value
            continue
        why = rule.get("note", "the same under another name")
        if rule["kind"] == "renamed":
            if rule.get("invert"):
                value, why = not value, "the same, inverted"
            result.setdefault(rule["became"], rule.get("values", {}).get(str(value).lower(), value))
        elif value is False and "when_false" in rule:
            result.setdefault(rule["when_false"], None)
        changes.append(Change(f"{where}: {key}", rule.get("became", ""), rule["version"], why, rule["kind"]))
    return result


def whole_number(value: object, where: str) -> int:
    """A number of tokens, 1 or more; raises DrafthouseError for anything else."""
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    found = "no number" if value is True else repr(value)
    raise one_problem("wrong-type", found, "an integer of at least 1", "set the number of draft tokens", where)


def json_value(value: Any) -> Any:
    """What a word means as JSON, or the word itself."""
    try:
        return json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value
