"""Print the shell completion of verbs and options.

Examples:
  source <(drafthouse completion bash)
  drafthouse completion zsh > ~/.zfunc/_drafthouse
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import shtab

from ..core.exit_codes import DONE
from .parser import Parser, parser_of

SHELLS = ("bash", "zsh")


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "completion")
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def every_option() -> argparse.ArgumentParser:
    """Return one parser that has all verbs' options."""
    from .main import VERBS, module_of  # noqa: PLC0415 (it finds the verbs, this one among them)

    whole = argparse.ArgumentParser(prog="drafthouse")
    whole.add_argument("--version", action="store_true", help="show the version")
    verbs = whole.add_subparsers()
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.says, parents=[module_of(name).options()], add_help=False)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Print the script."""
    print(shtab.complete(every_option(), options().parse_args(argv).shell))
    return DONE
