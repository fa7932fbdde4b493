"""Write a profile for a model on a GPU, with the engine, method, draft and context that fit.

Examples:
  drafthouse new --target qwen3-32b --gpu h100 --print
  drafthouse new --target Qwen/Qwen3-14B --gpu rtx4090 --method ngram

What is not given is chosen, and the file says why; at a terminal the target and the GPU are asked for. The file goes to
profiles/ of the clone, or to ~/.config/drafthouse/profiles/; --print > FILE puts it elsewhere. A file that is there is
not overwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.files import replace_file
from ..core.forms import PROFILE_NAME
from ..models.fits import engine_for, hardware_of_catalogue
from ..models.new_profile import Wish, new_profile
from ..profiles.model_names import model_named
from ..profiles.own_folders import own_folder
from ..profiles.workspace import ROOT, catalog_for, load_suites, site_of_inventory
from .parser import Parser, parser_of
from .profile_arguments import add_entries

# By option: where the user finds what it takes.
_LISTED = {"--target": "drafthouse models lists the models", "--gpu": "drafthouse fits MODEL lists the GPUs"}


def options() -> Parser:
    """The argument parser of `drafthouse new`."""
    parser = parser_of(__doc__, "new")
    parser.add_argument("--target", metavar="MODEL", help="an entry of the catalogue, or its repository")
    parser.add_argument("--gpu", metavar="HARDWARE", help="hardware of the catalogue, such as rtx6000")
    parser.add_argument("--method", help="method of speculation (default: the one with the best evidence)")
    parser.add_argument("--draft", metavar="MODEL", help="draft (default: the one with the best evidence)")
    parser.add_argument("--engine", help="engine (default: the one most profiles of the format use)")
    parser.add_argument("--name", help="the profile's name (default: HARDWARE-TARGET-METHOD)")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the file and write none")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Choose what the arguments leave open, check the new profile by resolving it, and write it."""
    args = options().parse_args(argv)
    catalog = catalog_for()  # the catalogue and the profiles
    word = args.target or _answer("--target", "target (drafthouse models lists them, drafthouse model add adds one)")
    add_entries(word, args.draft, catalog)
    target = model_named(word, catalog, "--target")
    hardware = args.gpu or _answer("--gpu", f"GPU ({', '.join(sorted(catalog.hardware))})")
    hardware = hardware_of_catalogue(hardware, catalog)
    draft = model_named(args.draft, catalog, "--draft") if args.draft else None
    engine = engine_for(catalog, catalog.models[target], args.engine)
    engine_id = next(key for key, entry in catalog.engines.items() if entry is engine)
    site = site_of_inventory(catalog.hardware[hardware]["inventory"])
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites((), ROOT).items()}
    wish = Wish(target, hardware, engine_id, method=args.method, draft=draft, name=args.name)
    profile = new_profile(wish, catalog, site, kinds)
    if args.only_print:
        print(profile.text(), end="")
        return DONE
    if not PROFILE_NAME.fits(profile.name):
        raise one_problem("wrong-format", f"--name {profile.name}", PROFILE_NAME.needed, "correct it")
    path = own_folder(ROOT) / f"{profile.name}.yml"
    if profile.name in catalog.profiles and not (path.is_file() and path.read_text("utf-8") == profile.text()):
        do = f"add --name, or look at it: drafthouse plan {profile.name}"
        raise one_problem("duplicate-name", f"an existing profile '{profile.name}'", "an unused name", do, str(path))
    replace_file(path, profile.text(), mode=0o644)
    print(f"wrote: {path}\nnext: drafthouse plan {profile.name}")
    return DONE


def _answer(option: str, question: str) -> str:
    """The user's answer at the terminal. Raises DrafthouseError for an empty one, and where stdin is no terminal."""
    if sys.stdin.isatty() and (answer := input(f"{question}: ").strip()):
        return answer
    raise one_problem("missing-option", f"no {option}", "a name", _LISTED[option])
