"""Read one YAML file of the catalogue, and check it against its shape. Paths are relative to the clone, or absolute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import DrafthouseError, Problem
from ..core.schema import Findings, Shape, check, check_text
from ..core.versions import is_version
from ..core.yaml_documents import read_yaml

#: Keys whose value is a version.
_VERSION_KEYS = ("since", "until", "default_version")
#: Keys whose value is a list of versions, or a mapping by version.
_VERSION_LISTS = ("releases", "versions")


def read_table(
    root: Path, relative: str, shape: Shape, *, versions: bool = False, do: str | None = None
) -> tuple[Any, list[Problem]]:
    """A file's mapping ({} if it has none) and its problems.

    ``versions``: also check that each version in it can be compared. ``do``: as for `read_document`.
    """
    data, problems = read_document(root, relative, do)
    if not problems:
        problems = shape_problems(data, shape, relative, versions=versions)
    return (data if isinstance(data, dict) else {}), problems


def read_document(root: Path, relative: str, do: str | None = None) -> tuple[Any, list[Problem]]:
    """The content of a YAML file and the problems of reading it; the content is {} if there are any.

    ``do``: the advice for a file that git cannot restore; None: the advice is to restore it, if it is in the clone.
    """
    findings = Findings(relative)
    needed = "a YAML mapping" if do else "a YAML mapping, as git has it"
    restore = f"correct it, or restore it: git checkout -- {relative}"
    do = do or ("correct it" if Path(relative).is_absolute() else restore)
    if not (root / relative).is_file():
        findings.add("no-such-file", "", "no such file", "the catalogue's file", "restore it: git checkout -- profiles")
        return {}, findings.problems
    try:
        return _without_final_newlines(read_yaml(root / relative, needed, do, where=relative)), []
    except DrafthouseError as error:
        return {}, error.problems


def shape_problems(data: Any, shape: Shape, relative: str, *, versions: bool) -> list[Problem]:
    """The problems of ``data``, which was read from the file ``relative``; ``versions``: of its versions too."""
    findings = Findings(relative)
    if check(data, shape, findings) and versions:
        _check_versions(data, findings)
    check_text(data, findings)
    return findings.problems


def _without_final_newlines(data: Any) -> Any:
    """The data without the newline that YAML's ``>`` and ``|`` add to a text."""
    if isinstance(data, dict):
        return {key: _without_final_newlines(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_final_newlines(item) for item in data]
    return data.rstrip("\n") if isinstance(data, str) else data


def _check_versions(data: Any, findings: Findings, path: str = "") -> None:
    """Add a problem for each value that should be a version and cannot be compared; ``path``: that of ``data``."""
    if isinstance(data, list):
        for index, item in enumerate(data):
            _check_versions(item, findings, f"{path}[{index}]")
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        key_path = f"{path}.{key}" if path else str(key)
        versions = list(value) if key in _VERSION_LISTS and isinstance(value, list | dict) else []
        versions += [value] if key in _VERSION_KEYS and isinstance(value, str) else []
        # A model's `since` has a version for each engine.
        versions += list(value.values()) if key == "since" and isinstance(value, dict) else []
        for version in versions:
            if not is_version(str(version)):
                findings.add("wrong-format", key_path, repr(version), "a version, like 0.33.0", "correct it")
        _check_versions(value, findings, key_path)
