"""What a profile says to its engine that no key is for: `serve.extra`, words of a command, and `environment`. Pure.

Both go to every arm as they are. What the profile, the site or the vault says is refused here, by whatever spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    if not isinstance(given, list) or not all(_is_word(word) for word in given):
        # Not as it stands there: a key may be among the words.
        found = "a list with something other than words" if isinstance(given, list) else "no list"
        needed = "a list of words: [--flag, value, --switch]"
        findings.add("wrong-type", WHERE, found, needed, "put each word in quotes")
        return [], []
    words = [str(word) for word in given]
    known = lists.get(version)
    table: FlagWords = {"style": engine.get("flag_style", "-"), "short": {}, "switches": [], "several": []}
    # Where there is none of this version the newest still tells short spellings, or `-md` would be nobody's.
    table = with_list(table, known or lists.get(newest(lists)))
    flags: list[Flag] = []
    for word in words:
        if not flags or re.match(r"-{1,2}[A-Za-z]", word):
            flags.append([])
        flags[-1].append(word)
    warnings: list[str] = []
    for one in read_given(words, table):
        rule = _rule(engine, one, exact=known is not None)
        if one.name == "" and (known is not None or one.value == words[0]):
            findings.add(
                "unknown-flag",
                WHERE,
                f"'{one.value}' where no value is expected",
                "flags, each with its own values",
                _REMOVE,
            )
        elif rule and "warning" in rule:
            warnings.append(f"{one.spelled}: {rule['warning']}")
        elif rule or is_secret_name(_base(one)):
            by = rule["by"] if rule and "by" in rule else "the vault: every user can see a secret on a command line"
            findings.add("reserved-flag", WHERE, f"{one.spelled}, reserved for {by}", "another flag", _REMOVE)
        elif known is not None:
            _check_known(findings, one, known, table, f"{engine['name']} {version}")
    if flags and known is None:
        seen = f" (the newest is for {newest(lists)})" if lists else ""
        warnings.append(f"{WHERE} is passed unchecked: there is no flag list for {engine['name']} {version}{seen}")
    return flags, warnings


def check_environment(
    findings: Findings, given: Mapping[str, str], engine: CatalogEngine, required: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a profile's `environment` that may be set; ``required`` are those of its method."""
    launch = engine["launch"]
    options = {option["environment"]: key for key, option in engine["options"].items() if "environment" in option}
    owners = dict.fromkeys(launch.get("environment", {}), "the engine's entry in the catalogue")
    owners |= dict.fromkeys(required, "the method, which needs it")
    owners |= {name: f"serve.{key}" for name, key in options.items()}
    owners |= dict.fromkeys(_GPUS, "the inventory's drafthouse_gpus")
    for name in given:
        rows = (row for row in engine.get("reserved", []) if "by" in row)
        by = next((row["by"] for row in rows if _fits(name, row.get("environment", ()))), "") or owners.get(name)
        if by is None and (is_secret_name(name) or name == launch.get("key_environment")):
            by = "the vault: anyone can read a profile"
        if by:
            where = f"environment.{name}"
            findings.add("reserved-flag", where, f"{name}, reserved for {by}", "another variable", _REMOVE)
    return dict(given)


def _is_word(word: object) -> bool:
    return isinstance(word, (str, int, float)) and not isinstance(word, bool)


def _base(one: Given) -> str:
    return one.name.lstrip("-").partition(".")[0]


def _fits(name: str, patterns: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rule(engine: CatalogEngine, one: Given, *, exact: bool) -> Reserved | None:
    """Whose a flag is. Where no list tells what it is in full, its beginning is enough to be somebody's."""
    base = _base(one).replace("_", "-")
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
    launch, speculation = engine["launch"], engine["speculation"]
    site = [launch[key] for key in ("host", "port")]
    site += [name for name in (launch.get("key_file"), launch.get("key_inside")) if name]
    yield {"flags": [name.removeprefix("--") for name in site], "by": "the inventory"}
    target = [name for name in (launch.get("target"), launch.get("name")) if name]
    yield {"flags": ["model", *(name.removeprefix("--") for name in target)], "by": "the profile's target"}
    if config := launch.get("config"):
        yield {"flags": [config["flag"].removeprefix("--")], "by": "the engine's YAML, which is rendered"}
    methods = [name for entry in engine["methods"].values() for name in entry["names"].values()]
    methods += [option["name"] for entry in engine["methods"].values() for option in entry.get("options", {}).values()]
    methods += [name for entry in engine["methods"].values() for name in entry.get("follows", {})]
    drafts = [speculation["flag"]] if "flag" in speculation else methods if speculation["form"] == "flags" else []
    yield {"flags": [name.removeprefix("--") for name in drafts], "by": "speculation, which only one arm has"}
    for words in launch.get("always", []):
        yield {"flags": [words[0].removeprefix("--")], "by": "the launcher, which already sets it"}
    for key, option in engine["options"].items():
        if "flag" in option:
            yield {"flags": [option["flag"].removeprefix("--")], "by": f"the key serve.{key}"}


def _check_known(findings: Findings, one: Given, known: FlagList, table: FlagWords, engine: str) -> None:
    """Check one flag against the list of its version: its name, and how many values it takes."""
    base, names = _base(one), table["known"]
    if base not in names:
        close = nearest(base, names)
        do = f"write --{close}" if close else "remove it, or choose a version that has it"
        findings.add("unknown-flag", WHERE, f"{one.spelled}, which {engine} does not have", "one of its flags", do)
        return
    wanted = next((kind for kind in ("none", "one", "several") if base in known[kind]), "maybe")
    has = 0 if isinstance(one.value, bool) else len(one.value) if isinstance(one.value, list) else 1
    if (wanted == "none") != (has == 0) and wanted != "maybe" and "." not in one.name:
        needed = "no value: it is a switch" if wanted == "none" else "a value after it"
        findings.add(
            "wrong-type",
            WHERE,
            f"{one.spelled} with {count(has, 'value') if has else 'no value'}",
            needed,
            "correct it",
        )
