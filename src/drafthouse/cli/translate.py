"""Convert an old serve command to a profile and to today's command, and show what changed.

Examples:
  drafthouse translate 'python -m vllm.entrypoints.openai.api_server --model a/b --speculative-model c/d'
  drafthouse translate < article.md

It reads old and new forms of vLLM, TensorRT-LLM, llama.cpp and SGLang, also inside `docker run`, and Python's LLM(...).
Several commands in one paste are translated one by one. Nothing is run or downloaded. A YAML file that a command names
is read from its path, or from a heredoc in the paste.

Exit status: 0 everything was translated; 2 an error (where, found, needed, do), also where others were translated; 4 a
part that may speculate was not pasted: it is asked for, and no profile is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..core.documents import BadDocument, checked_text, text_of
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.exit_codes import CANNOT_SAY, DONE, FAILED
from ..profiles.workspace import ROOT, house_for
from ..translate.flags import load_flags
from ..translate.text import as_data, profile_text, translation_text
from ..translate.translator import Translation, translate
from .parser import Parser, coloured, parser_of, print_json

_LARGEST = 1_000_000  # bytes: a paste is not longer, a wrong file may be


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "translate")
    parser.add_argument("command", nargs="?", help="the command as ONE argument (default, and -: standard input)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="write the profile to this file; an existing file is not replaced"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the translations."""
    given = options().parse_args(argv)
    if given.command == "-":
        given.command = None
    if given.command is None and sys.stdin.isatty():
        print("paste the command, then Ctrl-D", file=sys.stderr)
    text = _pasted(given.command)
    if not text.strip():
        do = "drafthouse translate 'COMMAND', or < FILE; with make: CMD='...'"
        raise one_problem("no-command", "no command", "a serve command, or a page that contains one", do)
    found, loose, problems = translate(text, house_for(), load_flags(ROOT), _file)
    if given.profile:
        _write(given.profile, found)
    if given.json:
        refused = list(map(asdict, problems))
        print_json("translate", {"translations": list(map(as_data, found)), "left_aside": loose, "problems": refused})
        return _ended(found, problems)
    colour = coloured(sys.stdout)
    for place, translation in enumerate(found):
        print("\n" * bool(place) + translation_text(translation, colour=colour))
    if loose:
        print(f"\nleft out, as they are no whole command: {', '.join(loose)}")
    if given.profile:
        print(f"\nwritten: {given.profile}")
    if problems:
        sys.stdout.flush()
        print(f"\n{DrafthouseError(problems)}", file=sys.stderr)
    return _ended(found, problems)


def _ended(found: Sequence[Translation], problems: Sequence[Problem]) -> int:
    """The exit code: it cannot be said what a command does of which a part was not pasted."""
    if problems:
        return FAILED
    if any(translation.asked for translation in found):
        return CANNOT_SAY
    return DONE


def _pasted(command: str | None) -> str:
    """The paste, from the command line or standard input. Raises DrafthouseError where it is no text."""
    where = "the command"
    try:
        if command is not None:
            return checked_text(command)
        where = "standard input"
        return text_of(sys.stdin.buffer.read(_LARGEST))
    except BadDocument as error:
        raise DrafthouseError(error.problem(where, "text in UTF-8", "convert it: iconv -f ENCODING -t UTF-8")) from None


def _file(name: str) -> str | None:
    """The text of a file that a command names, or None where there is none."""
    try:
        return Path(name).expanduser().read_text("utf-8")[:_LARGEST]
    except (OSError, ValueError):
        return None


def _write(path: Path, found: list[Translation]) -> None:
    """Write the one profile; raises DrafthouseError rather than overwrite, or when there are several."""
    if len(found) > 1:
        raise one_problem(
            "several-commands",
            f"{len(found)} commands",
            "one, to write its profile",
            "paste one at a time",
            "--profile",
        )
    if found[0].asked:
        raise one_problem(
            "value-is-variable",
            f"a part that was not pasted: {found[0].asked[0]}",
            "all that may speculate",
            "paste it too, or leave it out",
            "--profile",
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(profile_text(found[0]))
    except FileExistsError:
        raise one_problem(
            "file-exists", "the file exists", "a new file", "choose another name, or remove it", str(path)
        ) from None
    except OSError as error:
        raise one_problem(
            "file-unwritable", str(error), "a folder to write to", "create it, or choose another", str(path)
        ) from error
