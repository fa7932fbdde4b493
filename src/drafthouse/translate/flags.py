"""Translate old flags and values of a pasted command into those of the engine's current version.

The tables of what changed in which version are `profiles/catalog/old_flags.yml` (all engines) and
`profiles/catalog/old_flags/ENGINE.yml`. A `Given` is a parsed flag of the command with its value, a `Change` a line of
the list in which the user finds every flag that is not passed on as typed.
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
from ..engines.read_flags import long_name, with_flag_list

if TYPE_CHECKING:
    from drafthouse.engines.pasted import FlagsToday
    from drafthouse.engines.read_flags import FlagList

FILE = "profiles/catalog/old_flags.yml"
FOLDER = "profiles/catalog/old_flags"
#: Kinds of a `Change` (docs/translate.md defines them), in the order of the text for the user.
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
    """The tables of each engine, and those that hold for all engines."""

    engines: Mapping[str, FlagTable]  # by engine id
    docker: Mapping[str, str]  # the reason why a flag of `docker run` is not needed, by flag without dashes
    moved_repositories: Mapping[str, str]  # the current name of a Hub repository by its old name
    environment: Mapping[str, OldRule]  # by environment variable

    def of(self, engine: str, flags: FlagList | None) -> FlagsToday:
        """The table of an engine, completed by ``flags``, the list of all flags of its current version."""
        engine_table = self.engines.get(engine, _NO_OLD_FLAGS)
        # The list of current flags lacks old ones, so their rules say which of them took no value.
        old_switches = [name for name, rule in engine_table["old"].items() if rule.get("takes") == "switch"]
        completed: FlagsToday = {
            **engine_table,
            "switches": [*engine_table["switches"], *old_switches],
            "known": [],
            "gone": list(engine_table["old"]),
            "environment": {**self.environment, **engine_table["environment"]},
        }
        with_known = with_flag_list(completed, flags)
        for key in ("short", "switches", "several", "known"):  # all keys that `with_flag_list` changes
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


def with_switch_values(flags: list[Given], switches: Sequence[str]) -> list[Given]:
    """The flags, with a switch's true or false as its value; old parsers accepted ``--x False`` and ``--x=false``."""
    result: list[Given] = []
    for given in flags:
        word = str(given.value).lower()
        if word in ("true", "false") and given.name in switches:  # --x=false
            result.append(replace(given, value=word == "true"))
        elif word in ("true", "false") and not given.name and result and result[-1].value is True:
            # --x False: the word is parsed as one without a flag, behind a switch that is on.
            result[-1] = replace(result[-1], value=word == "true")
        else:
            result.append(given)
    return result


def last_of_each(flags: list[Given], changes: list[Change], appends: Sequence[str] = ()) -> list[Given]:
    """The flags without earlier repeats, since engines take the last one; ``changes`` gets the repeats.

    Repeats of a flag in ``appends`` add up instead: they are merged into one flag with all their values.
    """
    flags = _merged(flags, changes, appends)
    last_index = {given.name: index for index, given in enumerate(flags) if given.name}
    last_flags = []
    for index, given in enumerate(flags):
        if given.name and last_index[given.name] != index:
            changes.append(Change(given.spelled, "", "-", "given again later: the last one counts", "ignored"))
        else:
            last_flags.append(given)
    return last_flags


def _merged(flags: list[Given], changes: list[Change], appends: Sequence[str]) -> list[Given]:
    """The flags, with repeated ones of ``appends`` merged into the first, their values joined by commas."""
    merged: list[Given] = []
    for given in flags:
        first = next((index for index, earlier in enumerate(merged) if earlier.name == given.name), None)
        if given.name not in appends or first is None or not isinstance(given.value, str):
            merged.append(given)
            continue
        joined = f"{merged[first].value},{given.value}"
        merged[first] = replace(merged[first], value=joined)
        changes.append(Change(f"{given.spelled} {given.value}", f"{given.flag} {joined}", "-", "each adds", "renamed"))
    return merged


def flags_of_variables(
    variables: Mapping[str, str], prefix: str, table: FlagsToday
) -> tuple[list[str], dict[str, str], list[str]]:
    """The flags that environment variables stand for (`LLAMA_ARG_CTX_SIZE`).

    ``prefix`` is that of the variables (`LLAMA_ARG_`), "" for an engine that reads no flags from variables.

    Returns the words for the start of the command (its own flags come later and so win), the flag by variable, and
    the variables with the prefix that are no known flag.
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
        positive = flag.removeprefix("no-")  # the flag that a "no-" flag turns off
        if name not in known and flag not in known and positive not in known:
            unknown.append(variable)
            continue
        is_switch = positive in table["switches"] or flag in table["switches"]
        is_on = value.lower() in ("1", "true", "on", "enabled", "yes")
        # A current "no-" flag takes no value; the rule of an old one needs the value as typed.
        if flag != positive and flag not in table["old"]:
            flag_words = [f"--{flag}"] if is_on else []  # LLAMA_ARG_NO_X=0 changes nothing
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
            was = given.spelled
            became = ""
            if rule["kind"] == "renamed":
                became = _new_flag_text(rule)
                result.append(replace(given, name=rule["became"], value=rule.get("value", given.value)))
            elif isinstance(given.value, str):  # the flag goes with its value, so the user sees both
                was += f" {given.value}"
            why = rule.get("note", "the same under another name")
            changes.append(Change(was, became, rule["version"], why, rule["kind"]))
        elif optional and given.value is True:  # typed without the value that it needs now
            why = "it needs a value now; without one it meant this"
            became = f"{given.flag} {optional['alone']}"
            changes.append(Change(given.spelled, became, optional["version"], why, "renamed"))
            result.append(replace(given, value=optional["alone"]))
        else:
            result.append(_new_value(given, table, changes))
    return result


def _new_flag_text(rule: OldRule) -> str:
    """A renamed flag for the user, with its value if the rule sets one."""
    return f"--{rule['became']} {rule.get('value', '')}".rstrip()


def _new_value(given: Given, table: FlagTable, changes: list[Change]) -> Given:
    """The flag with the current version's name for its value."""
    new_values = table["values"].get(given.name, {})
    if not isinstance(given.value, str) or given.value not in new_values:
        return given
    new = new_values[given.value]
    was = f"{given.spelled} {given.value}"
    became = f"{given.flag} {new['became']}"
    changes.append(Change(was, became, new["version"], "the same under another name", "renamed"))
    return replace(given, value=new["became"])
