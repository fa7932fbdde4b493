"""Flags and variables of a profile that have no key: `serve.extra` (words of a command) and `environment`.

Every arm gets both unchanged. Those that the profile's keys, the site or the vault set are refused, however spelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..core.errors import nearest
from ..core.format import count
from ..core.secret_shapes import is_secret_name
from ..engines.read_flags import read_given, with_flag_list
from .flag_lists import newest_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafthouse.core.schema import Findings
    from drafthouse.core.shell import Flag
    from drafthouse.engines.entry_types import CatalogEngine, Reserved
    from drafthouse.engines.pasted import FlagWords, Given
    from drafthouse.engines.read_flags import FlagList

WHERE = "serve.extra"
_GPUS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")  # variables that select GPUs
_REMOVE = "remove it"


def check_extra(
    findings: Findings, given: object, engine: CatalogEngine, version: str, lists: Mapping[str, FlagList]
) -> tuple[list[Flag], list[str]]:
    """The flags in `serve.extra`, each with its values, and warnings; problems go to ``findings``.

    ``lists``: the engine's flag lists by version. If ``version`` has none, flags are passed on with a warning.
    """
    if not isinstance(given, list) or not all(map(_is_word, given)):
        # The message does not show the value, which may contain an API key.
        found = "no list"
        if isinstance(given, list):
            found = "a list with something other than words"
        needed = "a list of words: [--flag, value, --switch]"
        findings.add("wrong-type", WHERE, found, needed, "put each word in quotes")
        return [], []
    words = list(map(str, given))
    flag_list = lists.get(version)
    syntax: FlagWords = {"style": engine.get("flag_style", "-"), "short": {}, "switches": [], "several": []}
    # Without a list of this version, the newest list gives the long names of short flags such as `-md`.
    syntax = with_flag_list(syntax, flag_list or lists.get(newest_version(lists)))
    warnings: list[str] = []
    for flag in read_given(words, syntax):
        # A bare word. Without a flag list it may be a further value of the flag before it, unless it is the first word.
        if flag.name == "" and (flag_list is not None or flag.value == words[0]):
            found = f"'{flag.value}' where no value is expected"
            findings.add("unknown-flag", WHERE, found, "flags, each with its own values", _REMOVE)
        else:
            warnings += _check_flag(findings, flag, engine=engine, version=version, flag_list=flag_list, syntax=syntax)
    flags = _flags_with_values(words)
    if flags and flag_list is None:
        warning = f"{WHERE} is passed unchecked: there is no flag list for {engine['name']} {version}"
        if lists:
            warning += f" (the newest is for {newest_version(lists)})"
        warnings.append(warning)
    return flags, warnings


def _flags_with_values(words: list[str]) -> list[Flag]:
    """The words split into flags, each of which begins with - or -- and a letter."""
    flags: list[Flag] = []
    for word in words:
        if not flags or re.match(r"-{1,2}[A-Za-z]", word):
            flags.append([])
        flags[-1].append(word)
    return flags


def _check_flag(
    findings: Findings,
    flag: Given,
    *,
    engine: CatalogEngine,
    version: str,
    flag_list: FlagList | None,
    syntax: FlagWords,
) -> list[str]:
    """Check that a flag is not reserved and is in the version's ``flag_list``, if there is one; return warnings.

    A rule of the catalogue may only warn of a flag; then nothing else is checked. ``syntax``: how the flags were read.
    """
    rule = _reserving_rule(engine, flag, exact=flag_list is not None)
    if rule and "warning" in rule:
        return [f"{flag.spelled}: {rule['warning']}"]
    if rule or is_secret_name(_bare_name(flag)):
        owner = "the vault: every user can see a secret on a command line"
        if rule and "by" in rule:
            owner = rule["by"]
        findings.add("reserved-flag", WHERE, f"{flag.spelled}, reserved for {owner}", "another flag", _REMOVE)
    elif flag_list is not None:
        _check_listed(findings, flag, flag_list, syntax, f"{engine['name']} {version}")
    return []


def check_environment(
    findings: Findings, given: Mapping[str, str], engine: CatalogEngine, required: Mapping[str, str]
) -> dict[str, str]:
    """The profile's `environment`, with a problem for each reserved variable; ``required``: the method's variables.

    Owners are, in this order: the reserving rules of the engine's entry; drafthouse_gpus; the option that is set by the
    variable; the method; the engine's own variables; and the vault, for a name that looks like a secret's.
    """
    launch = engine["launch"]
    # By variable; a later line replaces the owner of an earlier one.
    owners = dict.fromkeys(launch.get("environment", {}), "the engine's entry in the catalogue")
    owners |= dict.fromkeys(required, "the method, which needs it")
    for key, option in engine["options"].items():
        if "environment" in option:
            owners[option["environment"]] = f"serve.{key}"
    owners |= dict.fromkeys(_GPUS, "the inventory's drafthouse_gpus")
    for name in given:
        owner = _owner_in_entry(engine, name) or owners.get(name)
        if owner is None and (is_secret_name(name) or name == launch.get("key_environment")):
            owner = "the vault: anyone can read a profile"
        if owner:
            where = f"environment.{name}"
            findings.add("reserved-flag", where, f"{name}, reserved for {owner}", "another variable", _REMOVE)
    return dict(given)


def _owner_in_entry(engine: CatalogEngine, variable: str) -> str:
    """The owner for which the engine's entry reserves a variable; '' if it does not."""
    for rule in engine.get("reserved", []):
        if "by" in rule and _matches_any(variable, rule.get("environment", ())):
            return rule["by"]
    return ""


def _is_word(word: object) -> bool:
    """True if a YAML value can be a word of a command: a text or a number."""
    return isinstance(word, (str, int, float)) and not isinstance(word, bool)


def _bare_name(flag: Given) -> str:
    """The flag's name without dashes; that of `a` for `a.b`, the key b in the JSON of the flag a."""
    name, _, _ = flag.name.lstrip("-").partition(".")
    return name


def _matches_any(name: str, patterns: list[str] | tuple[str, ...]) -> bool:
    """True if a name matches one of the fnmatch patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _reserving_rule(engine: CatalogEngine, flag: Given, *, exact: bool) -> Reserved | None:
    """The rule that reserves a flag, None if none does.

    ``exact``: False if a prefix of a reserved flag is reserved too, as without a list of the engine's flags.
    """
    name = _bare_name(flag).replace("_", "-")
    for rule in _reserved_flags(engine):
        patterns = [pattern.replace("_", "-") for pattern in rule.get("flags", [])]
        # --no-x turns the switch --x off.
        if _matches_any(name.removeprefix("no-"), patterns) or _matches_any(name, patterns):
            return rule
        # argparse accepts a prefix of a flag, such as --speculative-conf.
        if not exact and len(name) > 1 and any(pattern.rstrip("*").startswith(name) for pattern in patterns):
            return rule
    return None


def _reserved_flags(engine: CatalogEngine) -> Iterator[Reserved]:
    """Yield the flags that `serve.extra` must not have, with their owners; the rules of the engine's entry first."""
    yield from engine.get("reserved", [])
    launch = engine["launch"]
    site = [launch["host"], launch["port"], launch.get("key_file"), launch.get("key_inside")]
    yield {"flags": _without_dashes(site), "by": "the inventory"}
    target = _without_dashes([launch.get("target"), launch.get("name")])
    yield {"flags": ["model", *target], "by": "the profile's target"}
    if config := launch.get("config"):
        yield {"flags": _without_dashes([config["flag"]]), "by": "the engine's YAML, which is rendered"}
    yield {"flags": _without_dashes(_speculation_flags(engine)), "by": "speculation, which only one arm has"}
    for always in (launch.get("always", {}), engine["speculation"].get("always", {})):
        yield {"flags": _without_dashes(always), "by": "the launcher, which already sets it"}
    for key, option in engine["options"].items():
        if "flag" in option:
            yield {"flags": _without_dashes([option["flag"]]), "by": f"the key serve.{key}"}


def _speculation_flags(engine: CatalogEngine) -> list[str]:
    """The flags that only the speculative arm has: the flag that takes JSON, or the flags of all methods."""
    speculation = engine["speculation"]
    if "flag" in speculation:
        return [speculation["flag"]]
    flags: list[str] = []
    if speculation["form"] == "flags":
        for method in engine["methods"].values():
            flags += [*method["names"].values(), *method.get("follows", {})]
            flags += [option["name"] for option in method.get("options", {}).values()]
    return flags


def _without_dashes(flags: Iterable[str | None]) -> list[str]:
    """Flags by their bare names; None stands for a flag that the engine does not have."""
    return [flag.removeprefix("--") for flag in flags if flag is not None]


def _check_listed(findings: Findings, flag: Given, flag_list: FlagList, syntax: FlagWords, engine: str) -> None:
    """Check a flag against its version's list: that it exists, and whether it takes values."""
    name = _bare_name(flag)
    known = syntax["known"]
    if name not in known:
        nearest_name = nearest(name, known)
        do = "remove it, or choose a version that has it"
        if nearest_name:
            do = f"write --{nearest_name}"
        findings.add("unknown-flag", WHERE, f"{flag.spelled}, which {engine} does not have", "one of its flags", do)
        return
    takes = next((kind for kind in ("none", "one", "several") if name in flag_list[kind]), "maybe")
    if takes == "maybe" or "." in flag.name:
        return
    values = 1
    if isinstance(flag.value, bool):
        values = 0
    elif isinstance(flag.value, list):
        values = len(flag.value)
    if takes == "none" and values:
        found = f"{flag.spelled} with {count(values, 'value')}"
        findings.add("wrong-type", WHERE, found, "no value: it is a switch", "correct it")
    elif takes != "none" and not values:
        findings.add("wrong-type", WHERE, f"{flag.spelled} with no value", "a value after it", "correct it")
