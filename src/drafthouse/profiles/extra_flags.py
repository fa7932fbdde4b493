"""What a profile says to its engine that no key is for: `serve.extra`, words of a command, and `environment`. Pure.

Both go to every arm as they are. What the profile, the site or the vault says is refused here, by whatever spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..core.errors import nearest
from ..core.format import count
from ..core.secret_shapes import is_secret_name
from ..engines.read_flags import read_given, with_list
from .flag_lists import newest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafthouse.core.schema import Findings
    from drafthouse.core.shell import Flag
    from drafthouse.engines.entry_types import CatalogEngine, Reserved
    from drafthouse.engines.pasted import FlagWords, Given
    from drafthouse.engines.read_flags import FlagList

WHERE = "serve.extra"
_GPUS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_REMOVE = "remove it"


def check_extra(
    findings: Findings, given: object, engine: CatalogEngine, version: str, lists: Mapping[str, FlagList]
) -> tuple[list[Flag], list[str]]:
    """The words of `serve.extra`, a flag with its values each, and warnings; what is wrong goes to ``findings``.

    ``lists`` are the flags of the engine by version: where there is none of ``version`` a flag is passed with a
    warning.
    """
    if not isinstance(given, list) or not all(map(_is_word, given)):
        # Not as it stands there: a key may be among the words.
        found = "no list"
        if isinstance(given, list):
            found = "a list with something other than words"
        needed = "a list of words: [--flag, value, --switch]"
        findings.add("wrong-type", WHERE, found, needed, "put each word in quotes")
        return [], []
    words = list(map(str, given))
    known = lists.get(version)
    table: FlagWords = {"style": engine.get("flag_style", "-"), "short": {}, "switches": [], "several": []}
    # Where there is none of this version the newest still tells short spellings, or `-md` would be nobody's.
    table = with_list(table, known or lists.get(newest(lists)))
    warnings: list[str] = []
    for flag in read_given(words, table):
        if flag.name == "" and (known is not None or flag.value == words[0]):
            found, needed = f"'{flag.value}' where no value is expected", "flags, each with its own values"
            findings.add("unknown-flag", WHERE, found, needed, _REMOVE)
        else:
            warnings += _check_flag(findings, flag, engine, version, known, table)
    flags = _flags_with_values(words)
    if flags and known is None:
        warning = f"{WHERE} is passed unchecked: there is no flag list for {engine['name']} {version}"
        if lists:
            warning += f" (the newest is for {newest(lists)})"
        warnings.append(warning)
    return flags, warnings


def _flags_with_values(words: list[str]) -> list[Flag]:
    """Words parted where a flag begins: -x, --xyz."""
    flags: list[Flag] = []
    for word in words:
        if not flags or re.match(r"-{1,2}[A-Za-z]", word):
            flags.append([])
        flags[-1].append(word)
    return flags


def _check_flag(
    findings: Findings, flag: Given, engine: CatalogEngine, version: str, known: FlagList | None, table: FlagWords
) -> list[str]:
    """Check that a flag is not somebody else's and, where the version's list is ``known``, there; return warnings."""
    rule = _rule(engine, flag, exact=known is not None)
    if rule and "warning" in rule:
        return [f"{flag.spelled}: {rule['warning']}"]
    if rule or is_secret_name(_base(flag)):
        owner = "the vault: every user can see a secret on a command line"
        if rule and "by" in rule:
            owner = rule["by"]
        findings.add("reserved-flag", WHERE, f"{flag.spelled}, reserved for {owner}", "another flag", _REMOVE)
    elif known is not None:
        _check_known(findings, flag, known, table, f"{engine['name']} {version}")
    return []


def check_environment(
    findings: Findings, given: Mapping[str, str], engine: CatalogEngine, required: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a profile's `environment` that may be set; ``required`` are those of its method."""
    launch = engine["launch"]
    owners = dict.fromkeys(launch.get("environment", {}), "the engine's entry in the catalogue")
    owners |= dict.fromkeys(required, "the method, which needs it")
    for key, option in engine["options"].items():
        if "environment" in option:
            owners[option["environment"]] = f"serve.{key}"
    owners |= dict.fromkeys(_GPUS, "the inventory's drafthouse_gpus")
    for name in given:
        by = _owner_in_entry(engine, name) or owners.get(name)
        if by is None and (is_secret_name(name) or name == launch.get("key_environment")):
            by = "the vault: anyone can read a profile"
        if by:
            where = f"environment.{name}"
            findings.add("reserved-flag", where, f"{name}, reserved for {by}", "another variable", _REMOVE)
    return dict(given)


def _owner_in_entry(engine: CatalogEngine, variable: str) -> str:
    """Whose an environment variable is by the engine's entry; '' where the entry does not reserve it."""
    for row in engine.get("reserved", []):
        if "by" in row and _fits(variable, row.get("environment", ())):
            return row["by"]
    return ""


def _is_word(word: object) -> bool:
    return isinstance(word, (str, int, float)) and not isinstance(word, bool)


def _base(flag: Given) -> str:
    return flag.name.lstrip("-").partition(".")[0]


def _fits(name: str, patterns: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rule(engine: CatalogEngine, flag: Given, *, exact: bool) -> Reserved | None:
    """Whose a flag is. Where no list tells what it is in full, its beginning is enough to be somebody's."""
    base = _base(flag).replace("_", "-")
    for row in _owned(engine):
        names = [pattern.replace("_", "-") for pattern in row.get("flags", [])]
        if _fits(base.removeprefix("no-"), names) or _fits(base, names):
            return row
        # As argparse completes it: --speculative-conf.
        if not exact and len(base) > 1 and any(name.rstrip("*").startswith(base) for name in names):
            return row
    return None


def _owned(engine: CatalogEngine) -> Iterator[Reserved]:
    """Yield the flags that are not for `serve.extra`, and whose they are: the entry's own words first."""
    yield from engine.get("reserved", [])
    launch = engine["launch"]
    site = [launch["host"], launch["port"], launch.get("key_file"), launch.get("key_inside")]
    yield {"flags": _without_dashes(site), "by": "the inventory"}
    target = _without_dashes([launch.get("target"), launch.get("name")])
    yield {"flags": ["model", *target], "by": "the profile's target"}
    if config := launch.get("config"):
        yield {"flags": _without_dashes([config["flag"]]), "by": "the engine's YAML, which is rendered"}
    yield {"flags": _without_dashes(_speculation_flags(engine)), "by": "speculation, which only one arm has"}
    for words in launch.get("always", []):
        yield {"flags": _without_dashes(words[:1]), "by": "the launcher, which already sets it"}
    for key, option in engine["options"].items():
        if "flag" in option:
            yield {"flags": _without_dashes([option["flag"]]), "by": f"the key serve.{key}"}


def _speculation_flags(engine: CatalogEngine) -> list[str]:
    """The flags that a speculative arm alone has: the one for JSON, or those of all methods."""
    speculation = engine["speculation"]
    if "flag" in speculation:
        return [speculation["flag"]]
    flags: list[str] = []
    if speculation["form"] == "flags":
        for method in engine["methods"].values():
            flags += [*method["names"].values(), *method.get("follows", {})]
            flags += [option["name"] for option in method.get("options", {}).values()]
    return flags


def _without_dashes(flags: Sequence[str | None]) -> list[str]:
    """Flags by their bare names; None stands for a flag that the engine does not have."""
    return [flag.removeprefix("--") for flag in flags if flag is not None]


def _check_known(findings: Findings, flag: Given, known: FlagList, table: FlagWords, engine: str) -> None:
    """Check one flag against the list of its version: its name, and how many values it takes."""
    base, names = _base(flag), table["known"]
    if base not in names:
        close = nearest(base, names)
        do = "remove it, or choose a version that has it"
        if close:
            do = f"write --{close}"
        findings.add("unknown-flag", WHERE, f"{flag.spelled}, which {engine} does not have", "one of its flags", do)
        return
    wanted = next((kind for kind in ("none", "one", "several") if base in known[kind]), "maybe")
    if wanted == "maybe" or "." in flag.name:
        return
    values = 1
    if isinstance(flag.value, bool):
        values = 0
    elif isinstance(flag.value, list):
        values = len(flag.value)
    if wanted == "none" and values:
        found, needed = f"{flag.spelled} with {count(values, 'value')}", "no value: it is a switch"
        findings.add("wrong-type", WHERE, found, needed, "correct it")
    elif wanted != "none" and not values:
        findings.add("wrong-type", WHERE, f"{flag.spelled} with no value", "a value after it", "correct it")
