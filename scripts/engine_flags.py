#!/usr/bin/env python3
"""Write down which flags a version of an engine has, as its own parser tells: profiles/catalog/flags/<engine>.yml.

    scripts/engine_flags.py ENGINE VERSION "SOURCE" --python ~/engines/x/bin/python
    scripts/engine_flags.py ENGINE VERSION "SOURCE" --help-of ~/engines/y/bin/llama-server --help
    scripts/engine_flags.py ENGINE VERSION "SOURCE" --rows-of ~/engines/z/bin/python tests/real_engines/x.py --rows

SOURCE says for people where the parser was. With --python the parser is Python's argparse, made by that interpreter;
with --help-of it is what the program prints; with --rows-of it prints the actions of such a parser itself, as
JSON: [spellings, how many values, the kind of action] each. Other versions in the file stay as they are.
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
# Run by the engine's interpreter: newest place of the parser first.
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
        found = of_argparse(json.loads(done.stdout.splitlines()[-1]))
    elif given.rows_of:
        done = subprocess.run(given.rows_of, capture_output=True, text=True, check=True)
        found = of_argparse(json.loads(done.stdout.splitlines()[-1]))
    else:
        found = of_help(subprocess.run(given.help_of, capture_output=True, text=True, check=True).stdout)
    path = given.into / f"{given.engine}.yml"
    versions: dict[str, FlagList] = read_yaml(path, "YAML", "")["versions"] if path.exists() else {}
    versions[given.version] = {**found, "source": given.source}
    in_order = {version: versions[version] for version in sorted(versions, key=as_version, reverse=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HEAD + "versions:\n" + "".join(map(_text, in_order, in_order.values())), "utf-8")
    print(f"{path.name}: {len(names_of(found))} flags of {given.version}")
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
    """The flags of a parser's actions: their spellings, how many values each takes, the kind of action."""
    found = _nothing()
    for spellings, count, kind in rows:
        names = [one.removeprefix("--") for one in spellings if one.startswith("--")]
        if kind in ("_HelpAction", "_VersionAction") or not names:
            continue
        takes: Kind = "none" if count == 0 else "maybe" if count == "?" else "one" if count is None else "several"
        # A short spelling stands before the long one, as in a help text.
        in_order = sorted(spellings, key=lambda one: one.startswith("--"))
        _put(found, takes, in_order, [one for one in names if not one.startswith("no-")] or names)
    return _sorted(found)


def of_help(text: str) -> FlagList:
    """The flags that a help text names, one entry a line: its spellings, then what it takes, then words."""
    found = _nothing()
    for line in text.splitlines():
        if not re.match(r"-{1,2}[A-Za-z]", line) or "argument has been removed" in line:
            continue
        # What it does stands behind a gap, or on the line below.
        head = re.sub(r",\s+", ", ", line.rstrip()).split("  ")[0]
        spellings = []
        while match := re.match(r"(-{1,2}[A-Za-z][\w.-]*)(,\s*)?", head):
            spellings.append(match[1])
            head = head[match.end() :]
            if not match[2]:
                break
        hint = head.strip()
        names = [one[2:] for one in spellings if one.startswith("--")]
        if not names or {"help", "version"} & set(names):
            continue
        takes: Kind = "none" if not hint else "several" if re.fullmatch(r"[A-Z]+ [A-Z]+", hint) else "one"
        _put(found, takes, spellings, [one for one in names if not one.startswith("no-")] or names)
    return _sorted(found)


def _text(version: str, flags: FlagList) -> str:
    """A list as a person would write it, for `git diff` to show what a version changed."""
    lines = [f"  {version}:", f"    source: {json.dumps(flags['source'])}"]
    for kind in KINDS:
        names = textwrap.fill(
            ", ".join(flags[kind]), 116, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False
        )
        lines += [f"    {kind}:", "      [", f"{names},", "      ]"] if flags[kind] else [f"    {kind}: []"]
    lines += ["    short:", *(f"      {key}: {long}" for key, long in flags["short"].items())]
    return "\n".join(lines) + "\n"


def _nothing() -> FlagList:
    return {"source": "", "none": [], "one": [], "several": [], "maybe": [], "short": {}}


def _put(found: FlagList, takes: Kind, spellings: Sequence[str], positive: Sequence[str]) -> None:
    """Put a flag into the list: under the first of its ``positive`` names, with all its ``spellings``."""
    own = positive[0]
    found[takes].append(own)
    for place, one in enumerate(spellings):
        # A short spelling is that of the long one behind it: "-cb, --cont-batching, -nocb, --no-cont-batching".
        behind = [long for long in spellings[place:] if long.startswith("--")] or [f"--{own}"]
        name = f"--{own}" if behind[0].removeprefix("--") in positive else f"--no-{own}"
        if one not in (f"--{own}", f"--no-{own}"):
            found["short"][one] = name


def _sorted(found: FlagList) -> FlagList:
    for kind in KINDS:
        found[kind].sort()
    return {**found, "short": dict(sorted(found["short"].items()))}


if __name__ == "__main__":
    run(main)
