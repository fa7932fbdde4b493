"""What all verbs (subcommands of `drafthouse`) share: argument parser, exit status, errors as found, needed, do."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TextIO, TypeVar

from ..core.errors import DrafthouseError, Problem, describe, did_you_mean, one_problem
from ..core.exit_codes import DONE, FAILED, INTERRUPTED, of_error
from ..core.places import INSTALLED, ROOT, WORK
from ..core.removed import removed

Cell = TypeVar("Cell")

#: How a required argument is given to make, by the argument's name; make has no variable for the other arguments.
_MAKE = {"profile": "PROFILE=name", "version": "ENGINE_VERSION=0.33.0", "A": "A=...", "B": "B=..."}

_DENIED = Problem(
    "file-unwritable", "no permission to read or write", "a path that this user may write", "correct its owner or mode"
)
_FULL = Problem("disk-full", "no space left", "free space", "free some space, then run again")
#: Errors of the machine that no verb can foresee, by errno. Any other OSError is a bug and keeps its traceback.
_MACHINE_PROBLEMS = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: replace(_DENIED, found="a read-only file system", do="mount it rw, or work in a copy elsewhere"),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: replace(_FULL, found="the disk quota is exceeded"),
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises DrafthouseError and suggests the nearest valid option or choice."""

    takes_words = False
    """True if the arguments after the first `--` are for another program; they are then parsed into ``words``."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """The parsed arguments. Raises DrafthouseError for a removed or unknown one; --help ends the program."""
        if args is None:
            args = sys.argv[1:]
        words = list(args)
        split = words.index("--") if self.takes_words and "--" in words else len(words)
        for word in words[:split]:
            if problem := removed("option", f"{self.prog.removeprefix('drafthouse ')} {word.partition('=')[0]}"):
                raise DrafthouseError(problem)
        parsed, unknown = self.parse_known_args(words[:split], namespace)
        parsed.words = words[split + 1 :]
        if unknown:
            word = unknown[0].partition("=")[0]
            options = [option for option in self._option_string_actions if option.startswith("--")]
            do = "remove it, or quote what belongs together"
            if word.startswith("-"):
                do = did_you_mean(word, options)
            raise one_problem("unknown-option", f"{word!r}", f"an argument listed by {self.prog} --help", do)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise DrafthouseError for an error of argparse; its ``message`` is parsed to suggest a correction."""
        needed = f"an argument listed by {self.prog} --help"
        if match := re.fullmatch(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            option, word, choices = match.groups()
            do = did_you_mean(word, choices.replace("'", "").split(", "))
            raise one_problem("invalid-option", f"{option} {word}", needed, do)
        missing = message.removeprefix("the following arguments are required: ")
        if missing == message:
            raise one_problem("invalid-option", message.removeprefix("argument "), needed, "correct it")
        hints = {"profile": "drafthouse profiles lists the profiles", "MODEL": "drafthouse models lists the models"}
        do = next((hint for word, hint in hints.items() if word in missing), "add it")
        make_variables = [_MAKE[word] for word in missing.split(", ") if word in _MAKE]
        if make_variables and not INSTALLED:
            do += f"; with make: {' '.join(make_variables)}"
        raise one_problem("missing-option", f"no {missing}", needed, do)


def parser_of(doc: str | None, verb: str = "", *, takes_words: bool = False) -> Parser:
    """A parser whose help is the docstring ``doc``: the first paragraph above the options, the rest below them."""
    text = doc or ""
    if "Exit status:" not in text:
        text = f"{text.rstrip()}\n\nExit status: 0 done; 2 an error (found, needed, do); docs/exit-codes.md."
    intro, _, rest = text.partition("\n\n")
    prog = f"drafthouse {verb}" if verb else None
    form = argparse.RawDescriptionHelpFormatter
    # An abbreviated option could mean another one in the next version, and some options destroy rented boxes.
    parser = Parser(prog=prog, description=intro, epilog=rest, formatter_class=form, allow_abbrev=False)
    parser.takes_words = takes_words
    return parser


def run(main: Callable[[], int]) -> None:
    """Exit with the status that ``main`` returns; print a DrafthouseError or an error of the machine on stderr."""
    try:
        status = main()
        sys.stdout.flush()
        sys.exit(status)
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        sys.exit(of_error(error))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has closed the pipe
        sys.exit(DONE)
    except OSError as error:
        if error.errno not in _MACHINE_PROBLEMS:
            raise
        if error.filename is None:  # stdout itself may have failed
            _drop_output()
        problem = replace(_MACHINE_PROBLEMS[error.errno], where=os.fsdecode(error.filename or ""))
        print(describe([problem]), file=sys.stderr)
        sys.exit(FAILED)


def _drop_output() -> None:
    """Send buffered output to /dev/null: flushing it at exit would raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def coloured(stream: TextIO) -> bool:
    """True if ``stream`` is a terminal and NO_COLOR is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def positive(text: str) -> int:
    """A whole number of 1 or more, as an argument's type."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def reports_option(parser: Parser) -> None:
    """Add --reports, the folder of the reports."""
    parser.add_argument("--reports", type=Path, default=WORK / "reports", metavar="DIR", help="folder of the reports")


def records(names: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[dict[str, Cell]]:
    """The rows of a table as JSON objects: column name to value."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def print_json(kind: str, data: Mapping[str, object]) -> None:
    """Print ``data`` as JSON; the number in ``schema`` rises when a field is renamed or removed."""
    print(json.dumps({"schema": f"drafthouse.{kind}/1", **data}, indent=1, ensure_ascii=False))


def project() -> Mapping[str, str]:
    """The table `project` of the clone's pyproject.toml, with name, version and description."""
    import tomllib  # noqa: PLC0415 (Python 3.11; boxes may have 3.10)

    return dict(tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"])
