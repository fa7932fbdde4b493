"""What a pasted command becomes on the way from old words to those of today: shared by all that read one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import DrafthouseError, Problem

Data = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """One flag as given: ``spelled`` as typed, ``name`` the long one without dashes ('' for a bare word)."""

    spelled: str
    name: str
    value: Any  # str, list of str, True, False

    @property
    def flag(self) -> str:
        """The long flag, with its dashes; an unknown short one stays as it is."""
        return self.name if self.name.startswith("-") else f"--{self.name}"


@dataclass(frozen=True)
class Change:
    """What became of one thing that was pasted. ``version`` is '-' where no version changed it."""

    what: str
    became: str
    version: str
    why: str
    kind: str

    def as_dict(self) -> dict[str, str]:
        """Return the change as plain data."""
        return {
            "what": self.what,
            "became": self.became,
            "version": self.version,
            "why": self.why,
            "kind": self.kind,
        }


@dataclass
class Speculation:
    """What a command says of speculation. ``tokens`` is None where it leaves their number out."""

    method: str
    draft: str
    tokens: int | None
    words: Data  # in the engine's own words of today
    options: Data = field(default_factory=dict)  # in a profile's words
    unknown: list[str] = field(default_factory=list)  # keys that the catalogue does not know

    def sorted(
        self,
        names: Mapping[str, str],
        known: Sequence[str],
        read: Callable[[Any], Any] = lambda value: value,
        prefix: str = "",
    ) -> Speculation:
        """Return itself, each word put into ``options`` where ``names`` has a profile's word for it, else ``unknown``.

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
    and ``table`` that of the old flags; ``guess`` names the method for a draft where the command does not.
    """

    given: list[Given]
    before: frozenset[str]
    engine: Mapping[str, Any]
    table: Mapping[str, Any]
    changes: list[Change]
    guess: Callable[[str], str]
    taken: Data = field(default_factory=dict)
    config: Data = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The version of today."""
        return str(self.engine["default_version"])

    def note(self, what: str, became: str, why: str, kind: str, version: str = "-") -> None:
        """Record what became of one thing."""
        self.changes.append(Change(what, became, version, why, kind))

    def option_names(self, method: str) -> dict[str, str]:
        """Return the engine's words for the options of a method -> a profile's."""
        options = self.engine["methods"].get(method, {}).get("options", {})
        return {str(option["name"]): key for key, option in options.items()}


def apply_keys(settings: Data, table: Mapping[str, Any], changes: list[Change], where: str) -> Data:
    """Return a flat table of settings (dotted keys) with today's keys, and note what changed."""
    result: Data = {}
    for given_key, given_value in settings.items():
        key, value = given_key, given_value
        head, dot, rest = key.partition(".")
        level = table["keys"].get(head) if dot else None
        if level and level.get("became") == "":  # a level that is gone: its keys stand one higher
            changes.append(Change(f"{where}: {key}", rest, level["version"], level["note"], "renamed"))
            key = rest
        rule = table["keys"].get(key)
        if rule is None:
            result[key] = value
            continue
        why = rule.get("note", "the same under another name")
        if rule["kind"] == "renamed":
            if rule.get("invert"):
                value, why = not value, "the same, the other way round"
            result.setdefault(rule["became"], rule.get("values", {}).get(str(value).lower(), value))
        elif value is False and "when_false" in rule:
            result.setdefault(rule["when_false"], None)
        changes.append(Change(f"{where}: {key}", rule.get("became", ""), rule["version"], why, rule["kind"]))
    return result


def whole_number(value: object, where: str) -> int:
    """Return a number of tokens, 1 or more; raises DrafthouseError for anything else."""
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    found = "no number" if value is True else repr(value)
    raise DrafthouseError(
        Problem(found, "a whole number, 1 or more", "say how many tokens to draft in one step", where)
    )


def json_value(value: Any) -> Any:
    """Return what a word means as JSON, or the word itself."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
