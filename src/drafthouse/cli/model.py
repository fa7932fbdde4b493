"""Add a model to the catalogue: any repository of the Hugging Face Hub, or a folder of this machine.

Examples:
  drafthouse model add Qwen/Qwen3-14B
  drafthouse model add org/name-GGUF:name-Q4_K_M.gguf
  drafthouse model add RedHatAI/Qwen3-14B-speculator.eagle3 --for Qwen/Qwen3-14B

It reads the repository's small files and the headers of its weights, and writes an entry that is pinned to the commit:
in a clone to profiles/catalog/local/, otherwise to ~/.config/drafthouse/profiles/catalog/local/. A profile then names
the model by its entry or by its repository (target: Qwen/Qwen3-14B). HF_TOKEN is used for gated repositories.

Exit status: 0 written or unchanged; 2 an error (found, needed, do); docs/exit-codes.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.forms import NAME
from ..core.plain_text import printable
from ..models.entry import NewEntry, made_entry
from ..models.local_entries import entry_lines, write_entry
from ..models.repository import ModelName, read_model
from ..profiles.catalog import Catalog
from ..profiles.workspace import ROOT, catalog_for
from ..weights.hub_habits import usual_token
from .parser import Parser, parser_of


def options() -> Parser:
    """The argument parser of `drafthouse model`."""
    parser = parser_of(__doc__, "model")
    parser.add_argument("action", choices=("add",), help="what to do")
    parser.add_argument("model", metavar="MODEL", help="org/name, org/name@revision, org/name:file.gguf or a folder")
    parser.add_argument(
        "--for", dest="head_for", metavar="MODEL", help="the target of a head whose files do not name it"
    )
    parser.add_argument("--name", help="the entry's name (default: the repository's, in small letters)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Read the model's files and write its catalogue entry."""
    args = options().parse_args(argv)
    if args.name is not None and not NAME.fits(args.name):
        raise one_problem("wrong-format", f"--name {args.name}", NAME.needed, "correct it")
    catalog = catalog_for()  # the catalogue and the profiles
    entry = read_entry(args.model, catalog, args.head_for)
    if args.name:
        entry = replace(entry, id=args.name)
    path, changed = write_entry(entry, catalog, ROOT, f"drafthouse model add {args.model}")
    print("\n".join(entry_lines(entry, path, changed)))
    return DONE


def read_entry(word: str, catalog: Catalog, head_for: str | None = None) -> NewEntry:
    """The catalogue entry of a repository or folder, read now; ``head_for`` is the target of a head that names none."""
    name = ModelName.of(word)
    model = read_model(name, token=usual_token(), tell=lambda line: print(f"  ... {printable(line)}", file=sys.stderr))
    return made_entry(model, catalog.models, head_for=head_for)
