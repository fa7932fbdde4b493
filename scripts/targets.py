#!/usr/bin/env python3
"""Show the targets of make, or the nearest target for a word that is none.

    scripts/targets.py          what `make help` prints: the Makefile's targets in its groups, and the profiles
    scripts/targets.py NAME=    refuse a removed variable of make
    scripts/targets.py WORD     refuse WORD, with the nearest target or profile, unless it is a profile of one's own

It runs even before `make venv`. Without a YAML library it cannot read the folders of profiles that inventories name
(drafthouse_profiles_dir).
"""

from __future__ import annotations

import importlib.util
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
from drafthouse.core.removed import removed  # noqa: E402 (the path comes first)
from drafthouse.core.table import table  # noqa: E402 (the path comes first)
from drafthouse.profiles.own_folders import profile_folders  # noqa: E402 (the path comes first)

_GROUP = re.compile(r"# --- (.+)")
_TARGET = re.compile(r"([a-z-]+):.* ## (.+)")
# Patterns of lines of profiles, because there may be no YAML library before `make venv`.
_FACTS = {name: re.compile(rf"^{name}: (\S+)", re.M) for name in ("hardware", "target", "engine")}
_FACTS["method"] = re.compile(r"^speculation:\n(?: .*\n)*?  method: (\S+)", re.M)
_COLUMNS = ("hardware", "target", "method", "engine")


def groups() -> dict[str, dict[str, str]]:
    """Groups of targets in the order of the Makefile: the descriptions by target."""
    found: dict[str, dict[str, str]] = {}
    for line in (ROOT / "Makefile").read_text("utf-8").splitlines():
        if head := _GROUP.fullmatch(line):
            targets = found[head[1]] = {}
        elif found and (target := _TARGET.fullmatch(line)):
            targets[target[1]] = target[2]
    return found


def profile_paths() -> dict[str, Path]:
    """Files of the profiles by name, in order: the shipped ones and the user's own."""
    named: list[str] = []
    if importlib.util.find_spec("yaml"):
        from drafthouse.profiles.workspace import every_own_folder  # noqa: PLC0415 (it needs YAML's library)

        named = every_own_folder()
    found = {path.stem: path for folder in profile_folders(ROOT, named) for path in folder.glob("*.yml")}
    return dict(sorted(found.items()))


def profiles() -> dict[str, dict[str, str]]:
    """Hardware, target, method and engine of each profile, by the catalogue's names."""
    found: dict[str, dict[str, str]] = {}
    for profile, path in profile_paths().items():
        text = path.read_text("utf-8", "replace")
        matches = {name: fact.search(text) for name, fact in _FACTS.items()}
        found[profile] = {name: match[1] if match else "?" for name, match in matches.items()}
    return found


def help_text(width: int = sys.maxsize) -> str:
    """What `make help` prints, wrapped at ``width`` characters."""

    def wrapped(name: str, description: str) -> list[str]:
        return textwrap.wrap(
            description, width, initial_indent=f"  {name:<16} ", subsequent_indent=" " * 19,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    lines: list[str] = []
    for group, targets in groups().items():
        lines += [f"{group}:", *(line for target in targets.items() for line in wrapped(*target)), ""]
    rows = [[name, *(facts[column] for column in _COLUMNS)] for name, facts in profiles().items()]
    shown = table(["make PROFILE", "hardware", "model", "method", "engine"], rows, width).splitlines()
    # Not indented: with the longest names the table fills 100 columns.
    return "\n".join([*lines, "Profiles: set up, serve and measure one", *(line.rstrip() for line in shown)])


def refusal(word: str) -> Problem:
    """Why ``word`` is no target, with the nearest one."""
    if "/" in word:
        return Problem("no-such-file", f"no file {word}", "an existing file", "correct the path")
    if gone := removed("target", word) or removed("profile", word) or removed("make variable", word.removesuffix("=")):
        return gone
    known = sorted({*profiles(), *(name for targets in groups().values() for name in targets)})
    near = nearest(word, known)
    do = f"make {near} (make help shows them all)" if near else "make help"
    begin = [f"make {name}" for name in known if name.startswith(f"{word}-")]
    if len(begin) > 1:
        do = f"one of: {', '.join(begin)}"
    return Problem("no-such-target", f"no target or profile '{word}'", "one that make help shows", do)


def main() -> int:
    """Print the help, or the refusal of a word."""
    if len(sys.argv) > 1:
        if sys.argv[1] in profile_paths():
            return DONE  # make runs it
        raise DrafthouseError(refusal(sys.argv[1]))
    # Wrapped only for a terminal: through a pipe each target has one line, for grep.
    print(help_text(shutil.get_terminal_size().columns) if sys.stdout.isatty() else help_text(), flush=True)
    return DONE


if __name__ == "__main__":
    run(main)
