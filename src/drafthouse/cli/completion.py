"""Print the shell completion of verbs, options, and the names of profiles, GPUs and models.

Examples:
  source <(drafthouse completion bash)
  drafthouse completion zsh > ~/.zfunc/_drafthouse
  drafthouse completion fish > ~/.config/fish/completions/drafthouse.fish

The names are those of now; make the script again after adding profiles or models of your own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import shtab

from ..core.exit_codes import DONE
from ..profiles.workspace import catalog_for
from .parser import Parser, parser_of

SHELLS = ("bash", "zsh", "fish")


def options() -> Parser:
    """The argument parser of `drafthouse completion`."""
    parser = parser_of(__doc__, "completion")
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def every_option() -> argparse.ArgumentParser:
    """One parser with all verbs and their options, and with the catalogue's names as choices, for shtab."""
    from .main import VERBS, module_of  # noqa: PLC0415 (main loads this module)

    catalog = catalog_for()  # the catalogue and the profiles
    models = sorted(catalog.models)
    names = {"profile": sorted(catalog.profiles), "gpu": sorted(catalog.hardware), "target": models, "draft": models}
    parser = argparse.ArgumentParser(prog="drafthouse")
    parser.add_argument("--version", action="store_true", help="show the version")
    verbs = parser.add_subparsers()
    for name, verb in VERBS.items():
        verb_parser = module_of(name).options()
        for action in verb_parser._actions:
            if action.dest in names:
                action.choices = names[action.dest]
            elif action.dest == "inventory":
                vars(action)["complete"] = shtab.DIRECTORY  # shtab reads this attribute
            elif action.dest == "model" and name in ("fits", "drafts"):
                action.choices = models
        verbs.add_parser(name, help=verb.help, parents=[verb_parser], add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the completion script of a shell."""
    print(shtab.complete(every_option(), options().parse_args(argv).shell))
    return DONE
