"""What every verb shares: its parser, its exit status, and errors as found / needed / do."""

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

#: What make has for a word that a verb asks for; for another one it has no target.
_MAKE = {"profile": "PROFILE=name", "version": "ENGINE_VERSION=0.33.0", "A": "A=...", "B": "B=..."}

_DENIED = Problem(
    "file-unwritable", "no permission to read or write", "a path that this user may write", "correct its owner or mode"
)
_FULL = Problem("disk-full", "no space left", "free space", "free some space, then run again")
#: What a machine refuses and no verb can know before; any other OSError is a fault of ours and keeps its traceback.
_BY_MACHINE = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: replace(_DENIED, found="a read-only file system", do="mount it rw, or work in a copy elsewhere"),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: replace(_FULL, found="the disk quota is exceeded"),
}


class Parser(argparse.ArgumentParser):
    """argparse's, which names the nearest option for one that it does not know."""

    takes_words = False
    """Whether what stands behind the first `--` is for another program, and goes to ``words``."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """The options. Raises DrafthouseError for an unknown one, and ends the program as argparse does."""
        if args is None:
            args = sys.argv[1:]
        own = list(args)
        split = own.index("--") if self.takes_words and "--" in own else len(own)
        for word in own[:split]:
            if gone := removed("option", f"{self.prog.removeprefix('drafthouse ')} {word.partition('=')[0]}"):
                raise DrafthouseError(gone)
        given, unknown = self.parse_known_args(own[:split], namespace)
        given.words = own[split + 1 :]
        if unknown:
            word = unknown[0].partition("=")[0]
            known = [option for option in self._option_string_actions if option.startswith("--")]
            do = "remove it, or quote what belongs together"
            if word.startswith("-"):
                do = did_you_mean(word, known)
            raise one_problem("unknown-option", f"{word!r}", f"an argument listed by {self.prog} --help", do)
        return given

    def error(self, message: str) -> NoReturn:
        """Raise DrafthouseError with what argparse found wrong."""
        needed = f"an argument listed by {self.prog} --help"
        if choice := re.fullmatch(r"argument (.+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            option, word, known = choice.groups()
            do = did_you_mean(word, known.replace("'", "").split(", "))
            raise one_problem("invalid-option", f"{option} {word}", needed, do)
        missing = message.removeprefix("the following arguments are required: ")
        if missing == message:
            raise one_problem("invalid-option", message.removeprefix("argument "), needed, "correct it")
        lists = {"profile": "drafthouse profiles lists the profiles", "MODEL": "drafthouse models lists the models"}
        do = next((says for word, says in lists.items() if word in missing), "add it")
        by_make = [_MAKE[word] for word in missing.split(", ") if word in _MAKE]
        if by_make and not INSTALLED:
            do += f"; with make: {' '.join(by_make)}"
        raise one_problem("missing-option", f"no {missing}", needed, do)


def parser_of(doc: str | None, verb: str = "", *, takes_words: bool = False) -> Parser:
    """The parser of a verb, or of a script; its help is the docstring, the first paragraph above the options."""
    text = doc or ""
    if "Exit status:" not in text:
        text = f"{text.rstrip()}\n\nExit status: 0 done; 2 an error (found, needed, do); docs/exit-codes.md."
    intro, _, rest = text.partition("\n\n")
    prog = f"drafthouse {verb}" if verb else None
    form = argparse.RawDescriptionHelpFormatter
    # A word that is cut short could mean another one tomorrow, and some options end what bills.
    parser = Parser(prog=prog, description=intro, epilog=rest, formatter_class=form, allow_abbrev=False)
    parser.takes_words = takes_words
    return parser


def run(main: Callable[[], int]) -> None:
    """End the program with the status of ``main``; a DrafthouseError becomes its lines on stderr."""
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
        _drop_output()  # the reader (head, less) has seen enough
        sys.exit(DONE)
    except OSError as error:
        if error.errno not in _BY_MACHINE:
            raise
        if error.filename is None:  # the output itself, maybe
            _drop_output()
        problem = replace(_BY_MACHINE[error.errno], where=os.fsdecode(error.filename or ""))
        print(describe([problem]), file=sys.stderr)
        sys.exit(FAILED)


def _drop_output() -> None:
    """Have what is still buffered go nowhere: it would raise again on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def coloured(stream: TextIO) -> bool:
    """Whether ``stream`` is a terminal of somebody who wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def positive(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def reports_option(parser: Parser) -> None:
    """Add where the reports lie."""
    parser.add_argument("--reports", type=Path, default=WORK / "reports", metavar="DIR", help="folder of the reports")


def records(names: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[dict[str, Cell]]:
    """The rows of a table as JSON has them: each value by the name of its column."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def print_json(kind: str, data: Mapping[str, object]) -> None:
    """Print what a program reads; ``schema`` changes its number when a field is renamed or goes."""
    print(json.dumps({"schema": f"drafthouse.{kind}/1", **data}, indent=1, ensure_ascii=False))


def project() -> Mapping[str, str]:
    """Name, version and description of this clone's release."""
    import tomllib  # noqa: PLC0415 (Python 3.11; boxes may have 3.10)

    return dict(tomllib.loads(Path(ROOT, "pyproject.toml").read_text("utf-8"))["project"])
