"""A translation for a terminal, and as plain data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import yaml

from ..core.plain_text import printable
from ..core.shell import shell_words
from ..core.table import table
from .flags import KINDS
from .translator import Translation

_VARIABLE = re.compile(r"[\w./:=@-]*(?:\$(?:\w+|\{\w+\})[\w./:=@-]*)+")
_CHANGES = ["was", "is now", "since", "why"]


class _Dumper(yaml.SafeDumper):
    """Writes lists in one line, as the profiles of the house do."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def profile_text(translation: Translation) -> str:
    """The profile as YAML, ready for profiles/<name>.yml; what it cannot hold stands in comments."""
    lines = ["# Translated from a pasted command by drafthouse translate; never run."]
    for entry in translation.left_out:
        lines.append(f"# In the command but not in this profile: {printable(entry)}")
    body = yaml.dump(translation.profile, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return "\n".join(lines) + "\n" + body


def command_text(translation: Translation) -> str:
    """The command to paste: the files it reads first, then one flag a line."""
    parts = [f"cat > {shell_words(name)} <<'EOF'\n{text}EOF\n" for name, text in translation.files.items()]
    first, *rest = translation.command
    head = " ".join([*translation.environment, _shell(first)])
    return "\n".join(parts) + " \\\n  ".join([head, *map(_shell, rest)])


def _shell(words: Sequence[str]) -> str:
    """Words quoted for a shell; one with a variable of the reader's shell is left for that to fill in."""
    return " ".join(f'"{word}"' if _VARIABLE.fullmatch(word) else shell_words(word) for word in words)


def as_data(translation: Translation) -> dict[str, Any]:
    """The whole translation as plain data, for --json; where something is asked for, without its command."""
    models: list[str] = []
    variables: list[str] = []
    for name in translation.missing:
        if "$" in name:
            variables.append(name)
        else:
            models.append(name)
    data: dict[str, Any] = {
        "name": translation.name,
        "engine": translation.engine,
        "engine_version": translation.version,
        "same_profiles": translation.same,
        "near_profiles": translation.near,
        "differs": translation.differs,
        "baseline": translation.baseline,
        "missing_models": models,
        "variables": variables,
        "asked": translation.asked,
        "profile": translation.profile,
        "profile_yaml": profile_text(translation),
        "command": list(chain.from_iterable(translation.command)),
        "command_text": command_text(translation),
        "files": translation.files,
        "changes": [change.as_dict() for change in translation.changes],
    }
    if translation.asked:
        data |= dict.fromkeys(("profile", "profile_yaml", "command", "command_text", "files"))
    return data


def translation_text(translation: Translation, *, colour: bool = False) -> str:
    """What a person reads: which profile it is, the profile, the command of today, the changes."""
    parts = [_paint(_is(translation), "\033[1m", colour)]
    if translation.asked:
        return "\n\n".join([*parts, _rule("what became of the rest", colour) + _changes(translation)])
    parts.append(_rule(f"profiles/{translation.name}.yml", colour) + profile_text(translation).rstrip())
    title = f"today's command ({translation.engine_name} {translation.version})"
    parts.append(_rule(title, colour) + command_text(translation))
    return "\n\n".join([*parts, _rule("what changed", colour) + _changes(translation)])


def _is(translation: Translation) -> str:
    """Say first whether there is such a profile already, and in what the command differs from it."""
    if translation.asked:
        wanted = "".join(f"\npaste it too, or leave it out: {printable(what)}" for what in translation.asked)
        return f"not translated yet: this may speculate, and what it holds was not pasted{wanted}"
    if not translation.same:
        return f"a new profile: {translation.name}{_missing_and_near(translation)}"
    name = translation.same[0]
    what = "the profile"
    if translation.baseline:
        what = "the baseline of the profile"
    differs = [f"it differs in {printable(one)}" for one in translation.differs]
    return "\n".join([f"this is {what} {name}: make {name}", *differs])


def _missing_and_near(translation: Translation) -> str:
    """Lines on the models that the catalogue lacks, and on the profiles near the new one."""
    text = ""
    for name in map(printable, translation.missing):
        if "$" in name:
            text += f"\na variable, not a model: {name}: paste the line that sets it, or write the model out"
        else:
            text += (
                f"\nnot in the catalogue: plan and run add it from the Hub, drafthouse model add does it now: {name}"
            )
    if translation.near:
        text += f"\nnear it: {', '.join(translation.near[:3])}"
    return text


def _changes(translation: Translation) -> str:
    """The changes, a table for each kind; versions stand beside what they changed."""
    blocks = []
    for kind in KINDS:
        rows = []
        for change in translation.changes:
            if change.kind == kind:
                became = "" if change.became == change.what else change.became
                rows.append([printable(change.what), printable(became), change.version, printable(change.why)])
        if rows:
            blocks.append(f"{kind}\n{_indented(_columns(rows))}")
    return "\n\n".join(blocks) or "nothing: every flag is current"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns that are empty in every row."""
    titles: list[str] = []
    columns: list[list[str]] = []
    for title, *cells in zip(_CHANGES, *rows, strict=True):
        if set(cells) - {"", "-"}:
            titles.append(title)
            columns.append(cells)
    return table(titles, list(zip(*columns, strict=True)))


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")


def _rule(title: str, colour: bool) -> str:
    return _paint(f"── {title} ".ljust(100, "─"), "\033[2m", colour) + "\n"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"{code}{text}\033[0m" if colour else text
