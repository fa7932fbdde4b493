#!/usr/bin/env python3
"""Count what keeps the code readable, and refuse what got worse.

    scripts/structure.py

Lines of each product file, the mappings whose values nobody can check, all product lines, and what Ansible would send
to a box for nothing. `make lint` calls it; that no file but its own names an engine is held by
tests/unit/repository/test_engine_names.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from _clone import parser_of, run

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.workspace import ROOT

#: A file is read in a sitting.
MOST_LINES = 400
#: Data, and not read: written by a script.
LONG = {"src/drafthouse/core/gitleaks_rules.py"}
#: As many as there are; each change may only lower it.
MOST_UNTYPED = 150
UNTYPED = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]")
#: Ansible packs into a module whatever a relative import names, also one that only a type checker reads.
SENT_FOR_NOTHING = re.compile(r"^if TYPE_CHECKING:\n(?:(?:    .*)?\n)*?    from \.", re.MULTILINE)
PRODUCT = ("*.py", "*.yml", "*.j2", "*.sh")


def main() -> int:
    """Print the counts; raise DrafthouseError where one is beyond its limit."""
    parser_of(__doc__).parse_args()
    lines = {path: text.count("\n") for path, text in product()}
    python = {path: text for path, text in product() if path.endswith(".py")}
    untyped = sum(len(UNTYPED.findall(text)) for text in python.values())
    print(f"product: {len(lines)} files, {sum(lines.values()):,} lines; {untyped} untyped mappings")
    problems = [
        Problem(
            "out-of-range",
            f"{count} lines",
            f"at most {MOST_LINES}",
            "move one subject into another file",
            path,
        )
        for path, count in lines.items()
        if path in python and count > MOST_LINES and path not in LONG
    ]
    if untyped > MOST_UNTYPED:
        found = f"{untyped} mappings from str to Any or object"
        problems.append(
            Problem(
                "out-of-range",
                found,
                f"at most {MOST_UNTYPED}",
                "name the type of what flows",
                "src/drafthouse",
            )
        )
    problems += [
        Problem(
            "invalid-setting",
            "a relative import under TYPE_CHECKING",
            "an absolute one, which Ansible does not pack into modules",
            "write from drafthouse.ROOM.FILE import NAME",
            path,
        )
        for path, text in python.items()
        if path.startswith("src/") and SENT_FOR_NOTHING.search(text)
    ]
    if problems:
        raise DrafthouseError(problems)
    return DONE


def product() -> Iterator[tuple[str, str]]:
    """Yield the paths and texts of all product files: neither tests nor docs, and each once."""
    done = subprocess.run(
        ["git", "ls-files", "-z", *PRODUCT], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    for name in done.stdout.split("\0"):
        path = Path(ROOT, name)
        if name and not name.startswith(("tests/", "docs/")) and path.is_file():
            yield name, path.read_text("utf-8")


if __name__ == "__main__":
    run(main)
