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
from ..profiles.workspace import house_for
from .parser import Parser, parser_of

SHELLS = ("bash", "zsh", "fish")


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "completion")
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def every_option() -> argparse.ArgumentParser:
    """One parser that has all verbs' options, with the names that each may take."""
    from .main import VERBS, module_of  # noqa: PLC0415 (it finds the verbs, this one among them)

    house = house_for()
    models = sorted(house.models)
    names = {"profile": sorted(house.profiles), "gpu": sorted(house.hardware), "target": models, "draft": models}
    whole = argparse.ArgumentParser(prog="drafthouse")
    whole.add_argument("--version", action="store_true", help="show the version")
    verbs = whole.add_subparsers()
    for name, verb in VERBS.items():
        of_verb = module_of(name).options()
        for action in of_verb._actions:
            if action.dest in names:
                action.choices = names[action.dest]
            elif action.dest == "inventory":
                vars(action)["complete"] = shtab.DIRECTORY  # shtab's own way to say it
            elif action.dest == "model" and name in ("fits", "drafts"):
                action.choices = models
        verbs.add_parser(name, help=verb.says, parents=[of_verb], add_help=False)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Print the script."""
    print(shtab.complete(every_option(), options().parse_args(argv).shell))
    return DONE
