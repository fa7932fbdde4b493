"""Translate old flags and values of a pasted command into those of the engine's current version.

The tables of what changed in which version are `profiles/catalog/old_flags.yml` (all engines) and
`profiles/catalog/old_flags/ENGINE.yml`.
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
#: Kinds of a `Change`, in the order of the text for the user.
KINDS = ("removed", "renamed", "moved", "ignored", "chosen", "kept")

OLD_FLAGS = shape_of(FlagTable)
OLD_FLAGS_OF_ALL = Map(
    {
        "docker": Table(Value(), required=True),
        "moved_repositories": Table(Value(), required=True),
        "environment": Table(shape_of(OldRule), required=True),
    }
)
#: The table of an engine without a file in `FOLDER`.
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
    """The tables by engine; for all engines reasons by `docker run` flag, moved repositories, rules by variable."""

    engines: Mapping[str, FlagTable]
    docker: Mapping[str, str]
    moved_repositories: Mapping[str, str]
    environment: Mapping[str, OldRule]

    def of(self, engine: str, flags: FlagList | None) -> FlagsToday:
        """The table of an engine, completed by ``flags``, the list of all flags of its current version."""
        engine_table = self.engines.get(engine, _NO_OLD_FLAGS)
        switches = [name for name, rule in engine_table["old"].items() if rule.get("takes") == "switch"]
        completed: FlagsToday = {
            **engine_table,
            "switches": [*engine_table["switches"], *switches],
            "known": [],
            "gone": list(engine_table["old"]),
            "environment": {**self.environment, **engine_table["environment"]},
        }
        with_known = with_list(completed, flags)
        for key in ("short", "switches", "several", "known"):
            if key in with_known:
                completed[key] = with_known[key]
        return completed


def load_flags(root: Path) -> OldFlags:
    """Read and check the tables in the clone at ``root``. Raises DrafthouseError with every problem."""
    common, problems = _read_table(root, FILE, OLD_FLAGS_OF_ALL)
    engines: dict[str, FlagTable] = {}
    for path in sorted((root / FOLDER).glob("*.yml")):
        engines[path.stem], file_problems = _read_table(root, f"{FOLDER}/{path.name}", OLD_FLAGS)
        problems += file_problems or _rule_problems(engines[path.stem], f"{FOLDER}/{path.name}")
    if problems:
        raise DrafthouseError(problems)
    return OldFlags(engines, **common)


def _read_table(root: Path, file: str, shape: Map) -> tuple[Any, list[Problem]]:
    findings = Findings(file)
    data = read_yaml(root / file, "the table of old flags, as YAML", f"restore it: git checkout -- {file}", where=file)
    check(data, shape, findings)
    return (data if isinstance(data, dict) else {}), findings.problems


def _rule_problems(table: FlagTable, file: str) -> list[Problem]:
    """Problems that the shape does not find: a renamed flag needs `became`, and no other kind may have it."""
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


def switched(flags: list[Given], switches: Sequence[str]) -> list[Given]:
    """The flags, with the word after a switch as its value: ``--x False`` and ``--x=false``, as old parsers took it."""
    result: list[Given] = []
    for given in flags:
        word = str(given.value).lower()
        if word in ("true", "false") and given.name in switches:
            result.append(replace(given, value=word == "true"))
        elif word in ("true", "false") and not given.name and result and result[-1].value is True:
            result[-1] = replace(result[-1], value=word == "true")
        else:
            result.append(given)
    return result


def last_of_each(flags: list[Given], changes: list[Change], appends: Sequence[str] = ()) -> list[Given]:
    """The last of each repeated flag, as the engines' parsers take it; ``changes`` gets the flags that are dropped.

    Flags in ``appends`` are merged into one flag with all their values.
    """
    flags = _merged(flags, changes, appends)
    last_index = {given.name: index for index, given in enumerate(flags) if given.name}
    kept = []
    for index, given in enumerate(flags):
        if given.name and last_index[given.name] != index:
            changes.append(Change(given.spelled, "", "-", "given again later: the last one counts", "ignored"))
        else:
            kept.append(given)
    return kept


def _merged(flags: list[Given], changes: list[Change], appends: Sequence[str]) -> list[Given]:
    """The flags, with repeated ones of ``appends`` merged into the first, their values joined by commas."""
    kept: list[Given] = []
    for given in flags:
        first = next((index for index, earlier in enumerate(kept) if earlier.name == given.name), None)
        if given.name not in appends or first is None or not isinstance(given.value, str):
            kept.append(given)
            continue
        joined = f"{kept[first].value},{given.value}"
        kept[first] = replace(kept[first], value=joined)
        changes.append(Change(f"{given.spelled} {given.value}", f"{given.flag} {joined}", "-", "each adds", "renamed"))
    return kept


def flags_of_variables(
    variables: Mapping[str, str], prefix: str, table: FlagsToday
) -> tuple[list[str], dict[str, str], list[str]]:
    """The flags that environment variables stand for (`LLAMA_ARG_CTX_SIZE`); ``prefix`` is that of the variables.

    Returns the words for the start of the command (whose own flags win), the flag by variable, and the variables with
    the prefix that are no known flag.
    """
    words: list[str] = []
    flag_by_variable: dict[str, str] = {}
    unknown: list[str] = []
    known = {*table.get("known", ()), *table["old"]}
    for short, long in table["short"].items():
        known.update((short.removeprefix("--"), long.removeprefix("--")))
    for variable, value in variables.items():
        if not prefix or not variable.startswith(prefix):
            continue
        suffix = variable.removeprefix(prefix)
        name = table.get("variables", {}).get(suffix, suffix.lower().replace("_", "-"))
        flag = long_name(f"--{name}", table)
        positive = flag.removeprefix("no-")
        if name not in known and flag not in known and positive not in known:
            unknown.append(variable)
            continue
        is_switch = positive in table["switches"] or flag in table["switches"]
        is_on = value.lower() in ("1", "true", "on", "enabled", "yes")
        if flag != positive and flag not in table["old"]:
            flag_words = [f"--{flag}"] if is_on else []  # LLAMA_ARG_NO_X
        elif is_switch and (is_on or value.lower() in ("0", "false", "off", "disabled", "no")):
            flag_words = [f"--{flag}" if is_on else f"--no-{flag}"]
        else:
            flag_words = [f"--{flag}", value]
        words += flag_words
        flag_by_variable[variable] = " ".join(flag_words)
    return words, flag_by_variable, unknown


def apply_old(flags: list[Given], table: FlagTable, changes: list[Change]) -> list[Given]:
    """The flags under their current names; ``changes`` gets what was renamed, removed, moved or ignored."""
    result = []
    for given in flags:
        rule = table["old"].get(given.name)
        optional = table.get("optional", {}).get(given.name)
        if rule is not None:
            was, became = given.spelled, ""
            if rule["kind"] == "renamed":
                became = _new_flag_text(rule)
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


def _new_flag_text(rule: OldRule) -> str:
    return f"--{rule['became']} {rule.get('value', '')}".rstrip()


def _new_value(given: Given, table: FlagTable, changes: list[Change]) -> Given:
    """The flag with the current version's name for its value."""
    new_values = table["values"].get(given.name, {})
    if not isinstance(given.value, str) or given.value not in new_values:
        return given
    new = new_values[given.value]
    was, became = f"{given.spelled} {given.value}", f"{given.flag} {new['became']}"
    changes.append(Change(was, became, new["version"], "the same under another name", "renamed"))
    return replace(given, value=new["became"])
