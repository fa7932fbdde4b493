"""Suites from files: YAML and JSONL. On the controller only, for it needs PyYAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from .problems import HouseError, Problem, did_you_mean
from .suites import Suite, check_suite, suite_from_lines

_ENDINGS = (".yml", ".yaml", ".jsonl")


def load_suite(name: str, folder: Path) -> Suite:
    """Return the suite called ``name`` in ``folder``, or the one in the file ``name``.

    A name with one of the endings .yml, .yaml, .jsonl is a file. Raises HouseError when the file is not
    there, cannot be read, or holds something else than a suite.
    """
    path = Path(name) if name.endswith(_ENDINGS) else folder / f"{name}.yml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = sorted(one.stem for one in folder.glob("*.yml"))
        advice = did_you_mean(name, known) if not name.endswith(_ENDINGS) else "correct the path"
        raise HouseError(
            Problem("no such file", "a suite: its name, or a .yml or .jsonl file", advice, f"prompt file {path}")
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise HouseError(
            Problem(str(error), "a readable UTF-8 file", "look at its rights and its encoding", str(path))
        ) from error
    if path.suffix == ".jsonl":
        return suite_from_lines(text, path.stem, str(path))
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise HouseError(
            Problem(f"no YAML: {error}", "a suite in YAML", "correct the file at that place", str(path))
        ) from error
    return check_suite(data, str(path))
