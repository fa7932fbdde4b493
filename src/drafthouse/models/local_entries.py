"""The user's own catalogue entries: one file each, which `load_house` reads beside the catalogue's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from ..core.errors import DrafthouseError, one_problem
from ..core.files import replace_file
from ..core.plain_text import printable
from ..core.schema import Findings, check, check_text
from ..profiles.catalog import House
from ..profiles.own_folders import own_models
from ..profiles.schemas import MODELS
from .entry import Made


def entry_text(made: Made, command: str) -> str:
    """The file of an entry, with what was assumed in comments."""
    by = f"By `{printable(command)}` from the repository's own files; every figure comes from them."
    return yaml_file([by, *made.notes], {made.id: dict(made.entry)})


def yaml_file(comments: Sequence[str], data: object) -> str:
    """A YAML document with comments, a line each, above it."""
    above = "".join(f"# {comment}\n" for comment in comments)
    return f"{above}---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)}"


def write_entry(made: Made, house: House, root: Path, command: str) -> tuple[Path, bool]:
    """Write an entry where the catalogue finds it; return its file and whether that changed.

    Raises DrafthouseError where another model has that name, or where the entry is none.
    """
    path = own_models(root) / f"{made.id}.yml"
    if (taken := house.models.get(made.id)) and (not path.exists() or taken["name"] != made.entry["name"]):
        raise one_problem(
            "duplicate-name",
            f"the name '{made.id}', which is already in the catalogue",
            "a unique name",
            f"add --name, or use '{made.id}' as it is (drafthouse plan shows it)",
            str(path),
        )
    findings = Findings(str(path))
    entry = {made.id: dict(made.entry)}
    check(entry, MODELS, findings)
    check_text(entry, findings)
    if findings.problems:
        raise DrafthouseError(findings.problems)
    text = entry_text(made, command)
    if path.is_file() and path.read_text("utf-8") == text:
        return path, False
    replace_file(path, text, mode=0o644)
    return path, True


def shown(made: Made, path: Path, changed: bool) -> Sequence[str]:
    """What was written, as lines for a person."""
    entry = made.entry
    size = f"{entry['weight_bytes'] / 1e9:.1f} GB, {entry['parameters'] / 1e9:.2f} B parameters"
    lines = [f"{made.id}: {entry['name']}, {entry['kind']}, {size}"]
    lines += [f"  note: {note}" for note in made.notes]
    if changed:
        return [*lines, f"wrote: {path}"]
    return [*lines, f"unchanged: {path}"]
