"""Fetch a data set of others, at a pinned commit, and check its hash.

Example:
  drafthouse suite add spec-bench

It is put below .drafthouse/suites/ and is not fetched again while its hash is right. The last line is the command that
asks it; NAME is the served model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.exit_codes import DONE
from ..core.places import WORK
from ..core.shell import shell_words
from ..prompts.data_sets import DATA_SETS, add
from ..prompts.loader import load_suite
from .parser import Parser, parser_of


def options() -> Parser:
    """The argument parser of `drafthouse suite`."""
    parser = parser_of(__doc__, "suite")
    parser.add_argument("action", choices=("add",), help="add: fetch it")
    parser.add_argument("name", choices=sorted(DATA_SETS), help="data set")
    parser.add_argument(
        "--to", type=Path, default=WORK / ".drafthouse/suites", metavar="DIR", help="folder to put it in"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch the data set; print its prompts per kind, and the command that sends them."""
    args = options().parse_args(argv)
    data_set = DATA_SETS[args.name]
    path, fetched = add(data_set, args.to)
    kinds = load_suite(str(path), args.to, form=data_set.form)["kinds"]
    print(f"{path}: {'fetched' if fetched else 'there already'}, {data_set.size:,} bytes, sha256 as pinned")
    print(f"licence: {data_set.licence}")
    print(", ".join(f"{name} {len(kind['prompts'])}" for name, kind in kinds.items()))
    words = ["--suite", str(path), "--dataset-format", data_set.form]
    print(shell_words(["drafthouse", "bench", "--base-url", "http://127.0.0.1:8000", "--model", "NAME", *words]))
    return DONE
