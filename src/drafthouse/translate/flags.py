"""What became of the flags of a command that are not today's.

What changed in which version is data (`profiles/catalog/old_flags.yml`, and the folder of that name); it is applied
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import DrafthouseError, Problem
from ..core.schema import Findings, Map, Table, Value, check
from ..core.typed_shape import shape_of
from ..core.yaml_documents import read_yaml
from ..engines.pasted import Change, FlagTable, Given, OldRule
from ..engines.read_flags import long_name, with_list

if TYPE_CHECKING:
    from drafthouse.engines.pasted import FlagsToday
    from drafthouse.engines.read_flags import FlagList

FILE = "profiles/catalog/old_flags.yml"
FOLDER = "profiles/catalog/old_flags"
KINDS = ("removed", "renamed", "moved", "ignored", "chosen", "kept")

OLD_FLAGS = shape_of(FlagTable)
OLD_FLAGS_OF_ALL = Map(
    {
        "docker": Table(Value(), required=True),
        "moved_repositories": Table(Value(), required=True),
        "environment": Table(shape_of(OldRule), required=True),
    }
)
#: What is known of an engine without a file of its own.
_NO_OLD_FLAGS: FlagTable = {
    "style": "-",
    "short": {},
    "switches": [],
    "several": [],
    "secret": [],
    "programs": {},
    "old": {},
    "keys": {},
    "values": {},
    "environment": {},
}


@dataclass(frozen=True)
class OldFlags:
    """What became of old flags: each engine's own, of containers' and of variables, and of repositories."""

    engines: Mapping[str, FlagTable]
    docker: Mapping[str, str]
    moved_repositories: Mapping[str, str]
    environment: Mapping[str, OldRule]

    def of(self, engine: str, flags: FlagList | None) -> FlagsToday:
        """The table of an engine, with ``flags``, all that the version of today has."""
        own = self.engines.get(engine, _NO_OLD_FLAGS)
        switches = [name for name, rule in own["old"].items() if rule.get("takes") == "switch"]
        more: FlagsToday = {
            **own,
            "switches": [*own["switches"], *switches],
            "known": [],
            "gone": list(own["old"]),
            "environment": {**self.environment, **own["environment"]},
        }
        read = with_list(more, flags)
        for key in ("short", "switches", "several", "known"):
            if key in read:
                more[key] = read[key]
        return more


def load_flags(root: Path) -> OldFlags:
    """Read and check the tables of old flags of the clone at ``root``; raises DrafthouseError with every problem."""
    problems: list[Problem] = []
    common, found = _read(root, FILE, OLD_FLAGS_OF_ALL)
    problems += found
    engines: dict[str, FlagTable] = {}
    for path in sorted((root / FOLDER).glob("*.yml")):
        engines[path.stem], found = _read(root, f"{FOLDER}/{path.name}", OLD_FLAGS)
        problems += found or _rule_problems(engines[path.stem], f"{FOLDER}/{path.name}")
    if problems:
        raise DrafthouseError(problems)
    return OldFlags(engines, **common)


def _read(root: Path, file: str, shape: Map) -> tuple[Any, list[Problem]]:
    findings = Findings(file)
    data = read_yaml(root / file, "the table of old flags, as YAML", f"restore it: git checkout -- {file}", where=file)
    check(data, shape, findings)
    return (data if isinstance(data, dict) else {}), findings.problems


def _rule_problems(table: FlagTable, file: str) -> list[Problem]:
    """What a shape cannot say: a renamed flag names its successor, and no other kind does."""
    findings = Findings(file)
    for part in ("old", "keys", "environment"):
        for name, rule in table[part].items():
            if (rule["kind"] == "renamed") != ("became" in rule):
                findings.add(
                    "conflicting-keys",
                    f"{part}.{name}",
                    f"kind: {rule['kind']} {'with' if 'became' in rule else 'without'} 'became'",
                    "the new name where it was renamed, and only there",
                    "correct the kind, or add or remove 'became'",
                )
    return findings.problems


def switched(found: list[Given], switches: Sequence[str]) -> list[Given]:
    """Make a switch that is on or off of one with a word, as old parsers took it: ``--x False``, ``--x=false``."""
    made: list[Given] = []
    for given in found:
        word = str(given.value).lower()
        if word in ("true", "false") and given.name in switches:
            made.append(replace(given, value=word == "true"))
        elif word in ("true", "false") and not given.name and made and made[-1].value is True:
            made[-1] = replace(made[-1], value=word == "true")
        else:
            made.append(given)
    return made


def last_of_each(found: list[Given], changes: list[Change], appends: Sequence[str] = ()) -> list[Given]:
    """Drop all but the last of a flag that was given more than once, as the engines' parsers do, and say so.

    Those that add to what stands before (``appends``) become one, with all their values.
    """
    found = _added(found, changes, appends)
    last = {given.name: place for place, given in enumerate(found) if given.name}
    kept = []
    for place, given in enumerate(found):
        if given.name and last[given.name] != place:
            changes.append(Change(given.spelled, "", "-", "given again later: the last one counts", "ignored"))
        else:
            kept.append(given)
    return kept


def _added(found: list[Given], changes: list[Change], appends: Sequence[str]) -> list[Given]:
    """Make one of the flags that add to what stands before."""
    kept: list[Given] = []
    for given in found:
        before = next((place for place, other in enumerate(kept) if other.name == given.name), None)
        if given.name not in appends or before is None or not isinstance(given.value, str):
            kept.append(given)
            continue
        both = f"{kept[before].value},{given.value}"
        kept[before] = replace(kept[before], value=both)
        changes.append(Change(f"{given.spelled} {given.value}", f"{given.flag} {both}", "-", "each adds", "renamed"))
    return kept


def flags_of_variables(
    variables: Mapping[str, str], prefix: str, table: FlagsToday
) -> tuple[list[str], dict[str, str], list[str]]:
    """The words of a command that variables of an engine are, the names that were read, and those that were not.

    An engine reads them before its command, whose own flags win.
    """
    words: list[str] = []
    read: dict[str, str] = {}
    unknown: list[str] = []
    known = {*table.get("known", ()), *table["old"]}
    for short, long in table["short"].items():
        known.update((short.removeprefix("--"), long.removeprefix("--")))
    for variable, value in variables.items():
        if not prefix or not variable.startswith(prefix):
            continue
        own = variable.removeprefix(prefix)
        name = table.get("variables", {}).get(own, own.lower().replace("_", "-"))
        flag = long_name(f"--{name}", table)
        positive = flag.removeprefix("no-")
        if name not in known and flag not in known and positive not in known:
            unknown.append(variable)
            continue
        switch = positive in table["switches"] or flag in table["switches"]
        on = value.lower() in ("1", "true", "on", "enabled", "yes")
        if flag != positive and flag not in table["old"]:
            new = [f"--{flag}"] if on else []  # LLAMA_ARG_NO_X
        elif switch and (on or value.lower() in ("0", "false", "off", "disabled", "no")):
            new = [f"--{flag}" if on else f"--no-{flag}"]
        else:
            new = [f"--{flag}", value]
        words += new
        read[variable] = " ".join(new)
    return words, read, unknown


def apply_old(found: list[Given], table: FlagTable, changes: list[Change]) -> list[Given]:
    """The flags of today; what was renamed, removed, moved or ignored is added to ``changes``."""
    result = []
    for given in found:
        rule = table["old"].get(given.name)
        optional = table.get("optional", {}).get(given.name)
        if rule is not None:
            was, became = given.spelled, ""
            if rule["kind"] == "renamed":
                became = _became(rule)
                result.append(replace(given, name=rule["became"], value=rule.get("value", given.value)))
            elif isinstance(given.value, str):
                was += f" {given.value}"
            why = rule.get("note", "the same under another name")
            changes.append(Change(was, became, rule["version"], why, rule["kind"]))
        elif optional and given.value is True:
            why = "it needs a value now; without one it meant this"
            became = f"{given.flag} {optional['alone']}"
            changes.append(Change(given.spelled, became, optional["version"], why, "renamed"))
            result.append(replace(given, value=optional["alone"]))
        else:
            result.append(_new_value(given, table, changes))
    return result


def _became(rule: OldRule) -> str:
    return f"--{rule['became']} {rule.get('value', '')}".rstrip()


def _new_value(given: Given, table: FlagTable, changes: list[Change]) -> Given:
    """The flag with the value that today's version has for it."""
    words = table["values"].get(given.name, {})
    if not isinstance(given.value, str) or given.value not in words:
        return given
    new = words[given.value]
    was, became = f"{given.spelled} {given.value}", f"{given.flag} {new['became']}"
    changes.append(Change(was, became, new["version"], "the same under another name", "renamed"))
    return replace(given, value=new["became"])
