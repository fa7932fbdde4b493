"""Parse the flags of a command as the engine's own parser does: find names, values, and the full name of each flag."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypedDict

from .pasted import Given

if TYPE_CHECKING:
    from drafthouse.engines.pasted import FlagWords

Kind = Literal["none", "one", "several", "maybe"]
#: How many values a flag takes; "maybe": none or one.
KINDS: tuple[Kind, ...] = ("none", "one", "several", "maybe")


class FlagList(TypedDict):
    """All flags of one version, by how many values they take."""

    source: str  # where they were read
    none: list[str]  # switches, which take no value
    one: list[str]
    several: list[str]  # any number of values
    maybe: list[str]  # a value or none
    short: dict[str, str]  # other spelling -> flag, both with dashes


def names_of(flags: FlagList) -> list[str]:
    """The long names of all flags of a version, without dashes."""
    return [name for kind in KINDS for name in flags[kind]]


def with_flag_list(table: FlagWords, flags: FlagList | None) -> FlagWords:
    """The ``table`` with the flags of a version added, None to add none.

    Where both have a spelling, the table's long name counts.
    """
    if flags is None:
        return table
    long_names = {key.removeprefix("--"): long.removeprefix("--") for key, long in table["short"].items()}

    def table_name(flag: str) -> str:
        """The table's long name for a flag, also behind "no-"."""
        plain = flag.removeprefix("--")
        if plain.startswith("no-") and plain not in long_names:
            return f"no-{table_name(plain[3:])}"
        return long_names.get(plain, plain)

    short = {key: f"--{table_name(long)}" for key, long in flags["short"].items() if key != f"--{table_name(long)}"}
    return {
        **table,
        "short": {**short, **table["short"]},
        "switches": [*table["switches"], *map(table_name, flags["none"])],
        "several": [*table["several"], *map(table_name, flags["several"])],
        "known": [*map(table_name, names_of(flags))],
    }


def read_given(words: list[str], table: FlagWords) -> list[Given]:
    """The flags in ``words`` with their values, as the engine of ``table`` parses them; a bare word has no name.

    The value follows `=` or is the next word; a switch has True, or False behind `no-`; a flag that may stand alone and
    does has True. All other flags take the next word, or all words up to the next flag if they take several; without
    one they have True.
    """
    switches = set(table["switches"])
    flags: list[Given] = []
    position = 0  # of the next word
    while position < len(words):
        word = words[position]
        position += 1
        if not re.match(r"-{1,2}[A-Za-z]", word):  # also a negative number that no flag before it takes
            flags.append(Given(word, "", word))
            continue
        spelled, equals, value = word.partition("=")
        level = re.fullmatch(r"-O(\d)", spelled)  # vLLM's -O3 is -O=3
        if level and "-O" in table["short"]:
            spelled, equals, value = "-O", "=", level.group(1)
        name = _unabbreviated(long_name(spelled, table), table)
        negated = name not in switches and name.startswith("no-") and name[3:] in switches
        if negated:
            name = name[3:]
        if equals:
            flags.append(Given(spelled, name, value))
        elif negated or name in switches:
            flags.append(Given(spelled, name, not negated))
        elif name in table.get("optional", {}) and (
            position >= len(words) or words[position] not in table["optional"][name]["words"]
        ):
            flags.append(Given(spelled, name, True))
        else:
            values = _values(words, position, several=name in table["several"])
            position += len(values)
            if len(values) > 1:
                flags.append(Given(spelled, name, values))
            else:
                flags.append(Given(spelled, name, values[0] if values else True))
    return flags


def _values(words: list[str], start: int, *, several: bool) -> list[str]:
    """The values from index ``start`` up to the next flag; at most one unless the flag takes ``several``."""
    end = start
    while end < len(words) and _is_value(words[end]) and (several or end == start):
        end += 1
    return words[start:end]


def _is_value(word: str) -> bool:
    """True if a word is no flag; a negative number and a dash alone are values too."""
    return not word.startswith("-") or re.fullmatch(r"-(\d+(\.\d+)?)?", word) is not None


def long_name(spelled: str, table: FlagWords) -> str:
    """The long name of a flag, without dashes.

    Up to the first dot it is spelled with the engine's "-" or "_" between words. An unknown short flag stays as typed,
    with its dash.
    """
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


def _unabbreviated(name: str, table: FlagWords) -> str:
    """The only flag that begins with ``name``, for an engine that accepts that (argparse); else ``name``."""
    head, dot, rest = name.partition(".")
    known = table.get("known", ()) if table.get("abbreviates") else ()
    if not known or head in known or head.startswith("-") or head in table.get("gone", ()):
        return name
    negative = "no-" if head.startswith("no-") else ""
    candidates = {flag for flag in known if flag.startswith(head[len(negative) :])}
    if len(candidates) != 1:
        return name
    return f"{negative}{candidates.pop()}{dot}{rest}"
