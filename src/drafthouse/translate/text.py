"""Write a translation as text for a terminal, and as plain data for `--json`."""

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
_CHANGE_TITLES = ["was", "is now", "since", "why"]


class _Dumper(yaml.SafeDumper):
    """Writes lists in one line, as shipped profiles do."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def profile_text(translation: Translation) -> str:
    """The profile as YAML for profiles/NAME.yml; comments list what a profile cannot contain."""
    lines = ["# Translated from a pasted command by drafthouse translate; never run."]
    for argument in translation.left_out:
        lines.append(f"# In the command but not in this profile: {printable(argument)}")
    body = yaml.dump(translation.profile, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return "\n".join(lines) + "\n" + body


def command_text(translation: Translation) -> str:
    """The current command to paste: it first writes the files that it reads, then has one flag per line."""
    parts = [f"cat > {shell_words(name)} <<'EOF'\n{text}EOF\n" for name, text in translation.files.items()]
    first, *rest = translation.command
    head = " ".join([*translation.environment, _shell_text(first)])
    return "\n".join(parts) + " \\\n  ".join([head, *map(_shell_text, rest)])


def _shell_text(words: Sequence[str]) -> str:
    """Words quoted for a shell; a word with a variable has double quotes, so that the shell expands it."""
    return " ".join(f'"{word}"' if _VARIABLE.fullmatch(word) else shell_words(word) for word in words)


def as_data(translation: Translation) -> dict[str, Any]:
    """The translation as plain data; without profile and command if the user must paste more (``asked``)."""
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
    """The text for a terminal: a summary, the profile, the current command, the changes."""
    parts = [_coloured(_summary(translation), "\033[1m", colour)]
    if translation.asked:
        return "\n\n".join([*parts, _heading("what became of the rest", colour) + _changes(translation)])
    parts.append(_heading(f"profiles/{translation.name}.yml", colour) + profile_text(translation).rstrip())
    title = f"today's command ({translation.engine_name} {translation.version})"
    parts.append(_heading(title, colour) + command_text(translation))
    return "\n\n".join([*parts, _heading("what changed", colour) + _changes(translation)])


def _summary(translation: Translation) -> str:
    """Lines that name the existing profile and how the command differs from it, or the new profile."""
    if translation.asked:
        wanted = "".join(f"\npaste it too, or leave it out: {printable(what)}" for what in translation.asked)
        return f"not translated yet: this may speculate, and what it holds was not pasted{wanted}"
    if not translation.same:
        return f"a new profile: {translation.name}{_missing_and_near(translation)}"
    name = translation.same[0]
    what = "the profile"
    if translation.baseline:
        what = "the baseline of the profile"
    differs = [f"it differs in {printable(difference)}" for difference in translation.differs]
    return "\n".join([f"this is {what} {name}: make {name}", *differs])


def _missing_and_near(translation: Translation) -> str:
    """Lines on the models that are not in the catalogue, and on the profiles most similar to the new one."""
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
    """The changes as a table for each kind: removed, renamed and so on."""
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
    """The rows as a table, without columns in which all cells are empty."""
    titles: list[str] = []
    columns: list[list[str]] = []
    for title, *cells in zip(_CHANGE_TITLES, *rows, strict=True):
        if set(cells) - {"", "-"}:
            titles.append(title)
            columns.append(cells)
    return table(titles, list(zip(*columns, strict=True)))


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")


def _heading(title: str, colour: bool) -> str:
    return _coloured(f"── {title} ".ljust(100, "─"), "\033[2m", colour) + "\n"


def _coloured(text: str, code: str, colour: bool) -> str:
    return f"{code}{text}\033[0m" if colour else text
