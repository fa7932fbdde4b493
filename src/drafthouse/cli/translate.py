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
from ..profiles.workspace import ROOT, catalog_for
from ..translate.flags import load_flags
from ..translate.text import as_data, profile_text, translation_text
from ..translate.translator import Translation, translate
from .parser import Parser, coloured, parser_of, print_json

_MOST_BYTES = 1_000_000  # read at most: no pasted page is longer, but a wrongly named file may be


def options() -> Parser:
    """The argument parser of `drafthouse translate`."""
    parser = parser_of(__doc__, "translate")
    parser.add_argument("command", nargs="?", help="the command as ONE argument (default, and -: standard input)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="write the profile to this file; an existing file is not replaced"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Translate the commands in the text, and print the profiles and what changed."""
    args = options().parse_args(argv)
    if args.command == "-":
        args.command = None
    if args.command is None and sys.stdin.isatty():
        print("paste the command, then Ctrl-D", file=sys.stderr)
    text = _pasted_text(args.command)
    if not text.strip():
        do = "drafthouse translate 'COMMAND', or < FILE; with make: CMD='...'"
        raise one_problem("no-command", "no command", "a serve command, or a page that contains one", do)
    translations, fragments, problems = translate(text, catalog_for(), load_flags(ROOT), _file_text)
    if args.profile:
        _write(args.profile, translations)
    if args.json:
        data = list(map(as_data, translations))
        print_json("translate", {"translations": data, "left_aside": fragments, "problems": [*map(asdict, problems)]})
        return _status_of(translations, problems)
    colour = coloured(sys.stdout)
    for index, translation in enumerate(translations):
        print("\n" * bool(index) + translation_text(translation, colour=colour))
    if fragments:
        print(f"\nleft out, as they are no whole command: {', '.join(fragments)}")
    if args.profile:
        print(f"\nwritten: {args.profile}")
    if problems:
        sys.stdout.flush()
        print(f"\n{DrafthouseError(problems)}", file=sys.stderr)
    return _status_of(translations, problems)


def _status_of(translations: Sequence[Translation], problems: Sequence[Problem]) -> int:
    """The exit status; CANNOT_SAY where a missing part of a command decides whether it speculates."""
    if problems:
        return FAILED
    if any(translation.asked for translation in translations):
        return CANNOT_SAY
    return DONE


def _pasted_text(command: str | None) -> str:
    """The pasted text, from the command line or standard input. Raises DrafthouseError where it is not UTF-8."""
    where = "the command"
    try:
        if command is not None:
            return checked_text(command)
        where = "standard input"
        return text_of(sys.stdin.buffer.read(_MOST_BYTES))
    except BadDocument as error:
        raise DrafthouseError(error.problem(where, "text in UTF-8", "convert it: iconv -f ENCODING -t UTF-8")) from None


def _file_text(name: str) -> str | None:
    """The text of a file that a command names; None where it cannot be read."""
    try:
        return Path(name).expanduser().read_text("utf-8")[:_MOST_BYTES]
    except (OSError, ValueError):
        return None


def _write(path: Path, translations: list[Translation]) -> None:
    """Write the profile to a new file. Raises DrafthouseError for several commands, and for an existing file."""
    if len(translations) > 1:
        raise one_problem(
            "several-commands",
            f"{len(translations)} commands",
            "one, to write its profile",
            "paste one at a time",
            "--profile",
        )
    if translations[0].asked:
        raise one_problem(
            "value-is-variable",
            f"a part that was not pasted: {translations[0].asked[0]}",
            "all that may speculate",
            "paste it too, or leave it out",
            "--profile",
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(profile_text(translations[0]))
    except FileExistsError:
        raise one_problem(
            "file-exists", "the file exists", "a new file", "choose another name, or remove it", str(path)
        ) from None
    except OSError as error:
        raise one_problem(
            "file-unwritable", str(error), "a folder to write to", "create it, or choose another", str(path)
        ) from error
