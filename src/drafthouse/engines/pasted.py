"""Types and helpers to translate a pasted command, an old command of a user, to the flags of today's engine version."""

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
    """A change of a flag, a configuration key or an environment variable in a version of the engine."""

    kind: Literal["removed", "renamed", "moved", "ignored"]
    became: NotRequired[str]  # the new name, of a renamed one; '' of a level of keys whose keys moved up
    value: NotRequired[str]  # the new value, whatever the old one is
    values: NotRequired[dict[str, str]]  # old value -> new value
    invert: NotRequired[bool]  # true becomes false, and false true
    when_false: NotRequired[str]  # the key to set if the value is false
    takes: NotRequired[Literal["switch"]]  # it took no value
    version: str  # that made the change
    note: NotRequired[str]  # why, for the user
    secret: NotRequired[bool]  # its value is never shown
    source: NotRequired[str]  # where the change was read


class NewValue(TypedDict):
    """The new name of a value, since ``version``."""

    became: str
    version: str


class NewProgram(NewValue):
    """The new name of a program, since ``version``."""

    note: NotRequired[str]


class ModelBehind(TypedDict):
    """A program that takes the model as a positional argument since ``version``."""

    program: str
    version: str
    note: str  # for the user


class OptionalWord(TypedDict):
    """A flag that needs one of ``words`` since ``version``; without a value it meant ``alone`` before."""

    words: list[str]
    alone: str
    version: str


class FlagStyle(TypedDict):
    """How an engine's flags are written; names are long and without dashes."""

    style: Literal["-", "_"]  # between the words of a name
    short: dict[str, str]  # another spelling -> the long flag, both with dashes
    switches: list[str]  # flags without a value
    several: list[str]  # flags with any number of values
    optional: NotRequired[dict[str, OptionalWord]]
    abbreviates: NotRequired[bool]  # a unique beginning stands for a flag, as in Python's argparse


class FlagWords(FlagStyle):
    """A flag style with the flags of one version; a missing list is not known."""

    known: NotRequired[list[str]]  # all flags of the version
    gone: NotRequired[list[str]]  # flags that only older versions have


class FlagTable(FlagStyle):
    """The flags of an engine and the changes of old ones: `profiles/catalog/old_flags/<engine>.yml`."""

    model_behind: NotRequired[ModelBehind]
    secret: list[str]  # flags whose value is never shown
    config: NotRequired[str]  # the flag that names a configuration file
    appends: NotRequired[list[str]]  # flags that add up if repeated; of others the last one counts
    variables: NotRequired[dict[str, str]]  # environment variable without prefix -> flag, where the names differ
    programs: dict[str, NewProgram]  # by old name
    old: dict[str, OldRule]  # by flag
    keys: dict[str, OldRule]  # by key of the configuration file
    values: dict[str, dict[str, NewValue]]  # by flag, then by old value
    environment: dict[str, OldRule]  # by variable


class FlagsToday(FlagTable):
    """A `FlagTable` with the names of flags of one version, as in `FlagWords`."""

    known: NotRequired[list[str]]
    gone: NotRequired[list[str]]


@dataclass(frozen=True)
class Given:
    """A flag of the command with its value, or a bare word."""

    spelled: str  # as typed
    name: str  # the long name without dashes; '' for a bare word; an unknown short flag as typed
    value: Any  # str, list of str; True or False for a switch

    @property
    def flag(self) -> str:
        """The long flag with its dashes; an unknown short flag as typed."""
        if self.name.startswith("-"):
            return self.name
        return f"--{self.name}"


@dataclass(frozen=True)
class Change:
    """A part of the pasted command that was changed."""

    what: str  # as it was
    became: str  # as it is now; '' if it was removed
    version: str  # that made the change; '-' if none did
    why: str
    kind: str  # one of `KINDS` of `translate/flags.py`

    def as_dict(self) -> dict[str, str]:
        """The change as plain data."""
        return asdict(self)


@dataclass
class Speculation:
    """The speculation settings of a command."""

    method: str  # the catalogue's name; the engine's name if the catalogue does not have the method
    draft: str  # the draft model's repository or path, '' for none
    tokens: int | None  # draft tokens per step; None if the command does not set them
    words: Settings  # all settings, with the engine's present names
    also: str = ""  # the methods that run beside it
    options: Options = field(default_factory=dict)  # settings that a profile can hold, with its names for them
    unknown: list[str] = field(default_factory=list)  # names of settings that the catalogue does not have

    def sort_words(
        self,
        names: Mapping[str, str],
        skipped: Sequence[str],
        parse: Callable[[Any], Any] = lambda value: value,
        prefix: str = "",
    ) -> Speculation:
        """Distribute ``words`` to ``options`` and ``unknown``; return self.

        ``names`` has a profile's name for each word that becomes an option. ``skipped`` words go to neither. ``parse``
        converts the values of options; ``prefix`` is put before the names of unknown words.
        """
        for word, value in self.words.items():
            if word in names:
                self.options[names[word]] = parse(value)
            elif word not in skipped:
                self.unknown.append(f"{prefix}{word}")
        return self


@dataclass
class Command:
    """A command whose old flags have been renamed; its `Engine` then takes the speculation out of ``given``."""

    given: list[Given]
    before: frozenset[str]  # names of the flags before they were renamed
    engine: EngineEntry  # from the catalogue
    table: FlagsToday
    changes: list[Change]  # so far; the user sees them
    guess: Callable[[str], str]  # the method for the name of a draft
    taken: Settings = field(default_factory=dict)  # by `Engine.take_speculation`
    config: Settings = field(default_factory=dict)  # of the configuration file that the command names; dotted keys
    target: str = ""  # the model, as typed

    @property
    def version(self) -> str:
        """Today's version: the one that the catalogue pins, to which the command is translated."""
        return self.engine["default_version"]

    def note(self, what: str, became: str, why: str, kind: str, version: str = "-") -> None:
        """Add a `Change` to ``changes``."""
        self.changes.append(Change(what, became, version, why, kind))

    def take(self, prefix: str) -> list[Given]:
        """Remove the flags whose names begin with ``prefix`` from ``given``, and return them."""
        taken: list[Given] = []
        rest: list[Given] = []
        for flag in self.given:
            if flag.name.startswith(prefix):
                taken.append(flag)
            else:
                rest.append(flag)
        self.given = rest
        return taken

    def names(self, method: str) -> dict[str, str]:
        """A profile's names of the settings that all methods share -> the engine's names for ``method``.

        {}, as in the next function, for a method that the catalogue does not have.
        """
        entry = self.engine["methods"].get(method)
        return entry["names"] if entry else {}

    def option_names(self, method: str) -> dict[str, str]:
        """The engine's names of the options of ``method`` -> a profile's names."""
        entry = self.engine["methods"].get(method)
        if entry is None:
            return {}
        return {option["name"]: key for key, option in entry.get("options", {}).items()}

    def method_named(self, word: str, settings: Settings) -> str:
        """The method with the engine's name ``word`` whose constant settings ``settings`` has; else ``word``."""
        for method, entry in self.engine["methods"].items():
            always = entry.get("always", {})
            if always and entry.get("value", method) == word and always.items() <= settings.items():
                return method
        return word


def apply_keys(settings: Settings, table: FlagTable, changes: list[Change], where: str) -> Settings:
    """Flat ``settings`` (dotted keys) with today's keys; each renamed or removed key is added to ``changes``.

    ``where``: the file or flag that has them, for the changes. A value under a present name wins over one under an old
    name, and of two old names the first wins.
    """
    result: Settings = {}
    for given_key, given_value in settings.items():
        key = given_key
        value = given_value
        head, dot, rest = key.partition(".")
        level = table["keys"].get(head) if dot else None
        if level and level.get("became") == "":  # the level was removed: its keys moved up by one level
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
                value = not value
                why = "the same, inverted"
            result.setdefault(rule["became"], rule.get("values", {}).get(str(value).lower(), value))
        elif value is False and "when_false" in rule:  # the key is gone; null for another one now means "off"
            result.setdefault(rule["when_false"], None)
        changes.append(Change(f"{where}: {key}", rule.get("became", ""), rule["version"], why, rule["kind"]))
    return result


def whole_number(value: object, where: str) -> int:
    """``value``, a number or its text, as a number of tokens, 1 or more. Raises DrafthouseError for anything else.

    ``where``: the place of the value, for the message.
    """
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    found = "no number" if value is True else repr(value)
    raise one_problem("wrong-type", found, "an integer of at least 1", "set the number of draft tokens", where)


def json_value(value: Any) -> Any:
    """``value`` parsed as JSON; unchanged if it is not JSON text."""
    try:
        return json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value
