"""Flags as an engine's own parser cuts them: which words are names, which are values, and what each name is in full."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypedDict

from .pasted import Given

if TYPE_CHECKING:
    from drafthouse.engines.pasted import FlagWords


Kind = Literal["none", "one", "several", "maybe"]
#: How many values a flag takes.
KINDS: tuple[Kind, ...] = ("none", "one", "several", "maybe")


class FlagList(TypedDict):
    """All flags of one version, by how many values they take; ``short`` has their other spellings, dashes and all."""

    source: str
    none: list[str]
    one: list[str]
    several: list[str]
    maybe: list[str]
    short: dict[str, str]


def names_of(flags: FlagList) -> list[str]:
    """All long names of a version, without dashes."""
    return [name for kind in KINDS for name in flags[kind]]


def with_list(words: FlagWords, flags: FlagList | None) -> FlagWords:
    """How flags are read, with what a version's list says too; where both name a flag, ``words`` does."""
    if flags is None:
        return words
    ours = {key.removeprefix("--"): long.removeprefix("--") for key, long in words["short"].items()}

    def name(theirs: str) -> str:
        plain = theirs.removeprefix("--")
        if plain.startswith("no-") and plain not in ours:
            return f"no-{name(plain[3:])}"
        return ours.get(plain, plain)

    short = {key: f"--{name(long)}" for key, long in flags["short"].items() if key != f"--{name(long)}"}
    return {
        **words,
        "short": {**short, **words["short"]},
        "switches": [*words["switches"], *map(name, flags["none"])],
        "several": [*words["several"], *map(name, flags["several"])],
        "known": [*map(name, names_of(flags))],
    }


def read_given(words: list[str], table: FlagWords) -> list[Given]:
    """Cut ``words`` into flags with their values, as the engine of ``table`` does; bare words have no name."""
    switches = set(table["switches"])
    found: list[Given] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not re.match(r"-{1,2}[A-Za-z]", word):
            found.append(Given(word, "", word))
            continue
        spelled, equals, value = word.partition("=")
        level = re.fullmatch(r"-O(\d)", spelled)
        if level and "-O" in table["short"]:
            spelled, equals, value = "-O", "=", level.group(1)
        name, negated = _in_full(long_name(spelled, table), table), False
        if name not in switches and name.startswith("no-") and name[3:] in switches:
            name, negated = name[3:], True
        if equals:
            found.append(Given(spelled, name, value))
        elif negated or name in switches:
            found.append(Given(spelled, name, not negated))
        elif name in table.get("optional", {}) and (
            place >= len(words) or words[place] not in table["optional"][name]["words"]
        ):
            found.append(Given(spelled, name, True))
        else:
            values = _values(words, place, several=name in table["several"])
            place += len(values)
            if len(values) > 1:
                found.append(Given(spelled, name, values))
            else:
                found.append(Given(spelled, name, values[0] if values else True))
    return found


def _values(words: list[str], place: int, *, several: bool) -> list[str]:
    """The values from ``place`` on up to the next flag; one at most where the flag does not take ``several``."""
    end = place
    while end < len(words) and _is_value(words[end]) and (several or end == place):
        end += 1
    return words[place:end]


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-(\d+(\.\d+)?)?", word) is not None


def long_name(spelled: str, table: FlagWords) -> str:
    """The long name without dashes, spelled as the engine does up to the first dot."""
    short = table["short"]
    if spelled in short:
        return short[spelled].removeprefix("--")
    if not spelled.startswith("--"):
        head, dot, rest = spelled.partition(".")
        if head not in short:
            return spelled
        return f"{short[head].removeprefix('--')}{dot}{rest}"
    head, dot, rest = spelled[2:].partition(".")
    head = head.replace("_", "-") if table["style"] == "-" else head.replace("-", "_")
    return f"{short.get(f'--{head}', head).removeprefix('--')}{dot}{rest}"


def _in_full(name: str, table: FlagWords) -> str:
    """The one flag that a parser of Python's argparse takes a beginning for; else ``name`` as it is."""
    head, dot, rest = name.partition(".")
    known = table.get("known", ()) if table.get("abbreviates") else ()
    if not known or head in known or head.startswith("-") or head in table.get("gone", ()):
        return name
    negative = "no-" if head.startswith("no-") else ""
    fitting = {flag for flag in known if flag.startswith(head[len(negative) :])}
    if len(fitting) != 1:
        return name
    return f"{negative}{fitting.pop()}{dot}{rest}"
