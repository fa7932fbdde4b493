"""Write the user's own model entries, one YAML file each; `load_catalog` reads them with the shipped catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from ..core.errors import DrafthouseError, one_problem
from ..core.files import replace_file
from ..core.plain_text import printable
from ..core.schema import Findings, check, check_text
from ..profiles.catalog import Catalog
from ..profiles.own_folders import own_models
from ..profiles.schemas import MODELS
from .entry import NewEntry


def entry_text(new: NewEntry, command: str) -> str:
    """The text of an entry's file; comments name the ``command`` that wrote it and the notes."""
    origin = f"By `{printable(command)}` from the repository's own files; every figure comes from them."
    return yaml_file([origin, *new.notes], {new.id: dict(new.entry)})


def yaml_file(comments: Sequence[str], data: object) -> str:
    """A YAML document below its comments, one line each."""
    comment_lines = "".join(f"# {comment}\n" for comment in comments)
    return f"{comment_lines}---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)}"


def write_entry(new: NewEntry, catalog: Catalog, root: Path, command: str) -> tuple[Path, bool]:
    """Write an entry into the user's part of the catalogue; return its file, and True if the file changed.

    Raises DrafthouseError if another model has the entry's name, or the entry is invalid.
    """
    path = own_models(root) / f"{new.id}.yml"
    if (taken := catalog.models.get(new.id)) and (not path.exists() or taken["name"] != new.entry["name"]):
        raise one_problem(
            "duplicate-name",
            f"the name '{new.id}', which is already in the catalogue",
            "a unique name",
            f"add --name, or use '{new.id}' as it is (drafthouse plan shows it)",
            str(path),
        )
    findings = Findings(str(path))
    entry = {new.id: dict(new.entry)}
    check(entry, MODELS, findings)
    check_text(entry, findings)
    if findings.problems:
        raise DrafthouseError(findings.problems)
    text = entry_text(new, command)
    if path.is_file() and path.read_text("utf-8") == text:
        return path, False
    replace_file(path, text, mode=0o644)
    return path, True


def entry_lines(new: NewEntry, path: Path, changed: bool) -> Sequence[str]:
    """Lines for the user on an entry and its file ``path``; without ``changed`` the file is as before."""
    entry = new.entry
    size = f"{entry['weight_bytes'] / 1e9:.1f} GB, {entry['parameters'] / 1e9:.2f} B parameters"
    lines = [f"{new.id}: {entry['name']}, {entry['kind']}, {size}"]
    lines += [f"  note: {note}" for note in new.notes]
    if changed:
        return [*lines, f"wrote: {path}"]
    return [*lines, f"unchanged: {path}"]
