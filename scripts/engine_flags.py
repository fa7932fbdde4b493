#!/usr/bin/env python3
"""Write the list of flags of an engine's version, from its own parser: profiles/catalog/flags/ENGINE.yml.

    scripts/engine_flags.py ENGINE VERSION "SOURCE" --python ~/engines/x/bin/python
    scripts/engine_flags.py ENGINE VERSION "SOURCE" --help-of ~/engines/y/bin/llama-server --help
    scripts/engine_flags.py ENGINE VERSION "SOURCE" --rows-of ~/engines/z/bin/python tests/real_engines/x.py --rows

SOURCE tells people where the parser came from. With --python it is the argparse parser that this interpreter makes;
with --help-of it is read from the output of the program; with --rows-of the program prints the actions of an argparse
parser as JSON, each as [spellings, number of values, class of the action]. Other versions in the file stay unchanged.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _clone import parser_of, run

from drafthouse.core.exit_codes import DONE
from drafthouse.core.versions import as_version
from drafthouse.core.yaml_documents import read_yaml
from drafthouse.engines.read_flags import KINDS, names_of
from drafthouse.profiles.flag_lists import FOLDER
from drafthouse.profiles.workspace import ROOT

if TYPE_CHECKING:
    from drafthouse.engines.read_flags import FlagList, Kind

_HEAD = """\
# yaml-language-server: $schema=../../../docs/flags.schema.json
# Written by scripts/engine_flags.py from the engine's own parser; not by hand.
---
"""
# Run by the engine's interpreter. Modules of the parser: those of newer versions come first.
_ARGPARSE = """
import importlib, json, logging, os
logging.disable(logging.CRITICAL)
def found(*places):
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            pass
    raise SystemExit(f"none of {places}")
make = found("vllm.entrypoints.launchers.cli_args:make_arg_parser", "vllm.entrypoints.openai.cli_args:make_arg_parser")
base = found("vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser")
rows = []
for action in make(base())._actions:
    rows.append([list(action.option_strings), action.nargs, type(action).__name__])
print("\\n" + json.dumps(rows))
"""


def main() -> int:
    """Write the list of one version."""
    given = _options()
    if given.python:
        done = subprocess.run([given.python, "-c", _ARGPARSE], capture_output=True, text=True, check=True)
        flags = of_argparse(json.loads(done.stdout.splitlines()[-1]))
    elif given.rows_of:
        done = subprocess.run(given.rows_of, capture_output=True, text=True, check=True)
        flags = of_argparse(json.loads(done.stdout.splitlines()[-1]))
    else:
        flags = of_help(subprocess.run(given.help_of, capture_output=True, text=True, check=True).stdout)
    path = given.into / f"{given.engine}.yml"
    versions: dict[str, FlagList] = read_yaml(path, "YAML", "")["versions"] if path.exists() else {}
    versions[given.version] = {**flags, "source": given.source}
    in_order = {version: versions[version] for version in sorted(versions, key=as_version, reverse=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HEAD + "versions:\n" + "".join(map(_text, in_order, in_order.values())), "utf-8")
    print(f"{path.name}: {len(names_of(flags))} flags of {given.version}")
    return DONE


def _options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("engine")
    parser.add_argument("version")
    parser.add_argument("source")
    parser.add_argument("--into", type=Path, default=ROOT / FOLDER, help="the folder of the lists")
    parser.add_argument("--python", help="the engine's interpreter")
    parser.add_argument("--help-of", nargs=argparse.REMAINDER, help="a program, and what has it print its flags")
    parser.add_argument("--rows-of", nargs=argparse.REMAINDER, help="a program that prints the actions of its parser")
    return parser.parse_args()


def of_argparse(rows: Iterable[tuple[list[str], object, str]]) -> FlagList:
    """Flags of a parser's actions, each as (spellings, argparse's nargs, class of the action)."""
    flags = _empty_list()
    for spellings, count, kind in rows:
        names = [spelling.removeprefix("--") for spelling in spellings if spelling.startswith("--")]
        if kind in ("_HelpAction", "_VersionAction") or not names:
            continue
        takes: Kind = "several"
        if count == 0:
            takes = "none"
        elif count == "?":
            takes = "maybe"
        elif count is None:
            takes = "one"
        # Short spellings first, as in a help text.
        _add(flags, takes, sorted(spellings, key=lambda spelling: spelling.startswith("--")), names)
    return _sorted(flags)


def of_help(text: str) -> FlagList:
    """Flags of a help text, one per line: its spellings, then the names of its values, then a description."""
    flags = _empty_list()
    for line in text.splitlines():
        if not re.match(r"-{1,2}[A-Za-z]", line) or "argument has been removed" in line:
            continue
        # The description follows two spaces, or is on the next line.
        head = re.sub(r",\s+", ", ", line.rstrip()).split("  ")[0]
        spellings = []
        while match := re.match(r"(-{1,2}[A-Za-z][\w.-]*)(,\s*)?", head):
            spellings.append(match[1])
            head = head[match.end() :]
            if not match[2]:
                break
        values = head.strip()
        names = [spelling[2:] for spelling in spellings if spelling.startswith("--")]
        if not names or {"help", "version"} & set(names):
            continue
        takes: Kind = "one" if values else "none"
        if re.fullmatch(r"[A-Z]+ [A-Z]+", values):
            takes = "several"
        _add(flags, takes, spellings, names)
    return _sorted(flags)


def _text(version: str, flags: FlagList) -> str:
    """A list as YAML of short lines, so that `git diff` shows what changed."""
    lines = [f"  {version}:", f"    source: {json.dumps(flags['source'])}"]
    for kind in KINDS:
        names = textwrap.fill(
            ", ".join(flags[kind]), 116, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False
        )
        lines += [f"    {kind}:", "      [", f"{names},", "      ]"] if flags[kind] else [f"    {kind}: []"]
    lines += ["    short:", *(f"      {key}: {long}" for key, long in flags["short"].items())]
    return "\n".join(lines) + "\n"


def _empty_list() -> FlagList:
    return {"source": "", "none": [], "one": [], "several": [], "maybe": [], "short": {}}


def _add(flags: FlagList, takes: Kind, spellings: Sequence[str], names: Sequence[str]) -> None:
    """Add a flag under the first of its long ``names`` that is not negated, with all its other ``spellings``."""
    positive = [name for name in names if not name.startswith("no-")] or names
    own = positive[0]
    flags[takes].append(own)
    for place, spelling in enumerate(spellings):
        # A short spelling belongs to the long one after it: "-cb, --cont-batching, -nocb, --no-cont-batching".
        long_after = [long for long in spellings[place:] if long.startswith("--")] or [f"--{own}"]
        name = f"--{own}" if long_after[0].removeprefix("--") in positive else f"--no-{own}"
        if spelling not in (f"--{own}", f"--no-{own}"):
            flags["short"][spelling] = name


def _sorted(flags: FlagList) -> FlagList:
    for kind in KINDS:
        flags[kind].sort()
    return {**flags, "short": dict(sorted(flags["short"].items()))}


if __name__ == "__main__":
    run(main)
