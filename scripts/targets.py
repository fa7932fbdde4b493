#!/usr/bin/env python3
"""Show what make can do, or the nearest target for a word that is none.

    scripts/targets.py          what `make help` prints: the Makefile's targets in its groups, and the profiles
    scripts/targets.py WORD     refuse WORD, with the nearest target or profile

Standard library only: it runs before `make venv`.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from drafthouse.cli.parser import run  # noqa: E402 (the path comes first)
from drafthouse.core.errors import DrafthouseError, Problem, nearest  # noqa: E402 (the path comes first)
from drafthouse.core.exit_codes import DONE  # noqa: E402 (the path comes first)
from drafthouse.core.table import table  # noqa: E402 (the path comes first)

_GROUP = re.compile(r"# --- (.+)")
_TARGET = re.compile(r"([a-z-]+):.* ## (.+)")
# Without a YAML library, which is in the environment that `make venv` makes: the lines as our profiles write them.
_FACTS = {name: re.compile(rf"^{name}: (\S+)", re.M) for name in ("hardware", "target", "engine")}
_FACTS["method"] = re.compile(r"^speculation:\n(?: .*\n)*?  method: (\S+)", re.M)
_COLUMNS = ("hardware", "target", "method", "engine")


def groups() -> dict[str, dict[str, str]]:
    """Return the groups of targets in the order of the Makefile, each with what its targets do."""
    found: dict[str, dict[str, str]] = {}
    for line in (ROOT / "Makefile").read_text("utf-8").splitlines():
        if head := _GROUP.fullmatch(line):
            targets = found[head[1]] = {}
        elif found and (target := _TARGET.fullmatch(line)):
            targets[target[1]] = target[2]
    return found


def profiles() -> dict[str, dict[str, str]]:
    """Return hardware, target, method and engine of each profile, by the catalogue's names."""
    return {
        path.stem: {name: ((match := fact.search(text)) and match[1]) or "?" for name, fact in _FACTS.items()}
        for path in sorted((ROOT / "profiles").glob("*.yml"))
        for text in [path.read_text("utf-8")]
    }


def help_text(width: int = sys.maxsize) -> str:
    """Return what `make help` prints, its words wrapped at ``width`` letters."""

    def wrapped(name: str, says: str) -> list[str]:
        return textwrap.wrap(
            says, width, initial_indent=f"  {name:<16} ", subsequent_indent=" " * 19,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    lines: list[str] = []
    for group, targets in groups().items():
        lines += [f"{group}:", *(line for target in targets.items() for line in wrapped(*target)), ""]
    rows = [[name, *(facts[column] for column in _COLUMNS)] for name, facts in profiles().items()]
    shown = table(["make PROFILE", "hardware", "model", "method", "engine"], rows).splitlines()
    # Not set in: with the longest names they fill a terminal of 100 columns.
    return "\n".join([*lines, "Profiles: set up, serve and measure one", *(line.rstrip() for line in shown)])


def refusal(word: str) -> Problem:
    """Return why ``word`` is no target, with the nearest one."""
    if "/" in word:
        return Problem("no-such-file", f"no file {word}", "an existing file", "correct the path")
    known = sorted({*profiles(), *(name for targets in groups().values() for name in targets)})
    near = nearest(word, known)
    do = f"make {near} (make help shows them all)" if near else "make help"
    return Problem("no-such-target", f"no target or profile '{word}'", "one that make help shows", do)


def main() -> int:
    """Print the help, or the refusal of a word."""
    if len(sys.argv) > 1:
        raise DrafthouseError(refusal(sys.argv[1]))
    # A line each through a pipe, for grep.
    print(help_text(shutil.get_terminal_size().columns) if sys.stdout.isatty() else help_text(), flush=True)
    return DONE


if __name__ == "__main__":
    run(main)
