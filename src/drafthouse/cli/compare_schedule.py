"""Compare a load sweep with and without switching speculation by batch size.

Example:
  drafthouse compare-schedule results/plain/ladder.json results/switched/ladder.json --write

The first file suggests the schedule (`schedule.command` in it is the run that creates the second one). --write stores
the comparison in the first file, under `schedule.tried`, where the report reads it.

Exit status: 0 the switch keeps what paid and nothing costs any more; 2 it does not, or an error occurred: found,
needed, do (docs/exit-codes.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..analysis.batch_k_schedule import tried
from ..analysis.crossover import fill
from ..bench.kept_shapes import checked_ladder
from ..bench.sweep.ladder_types import Ladder, Tried
from ..core.documents import read_json
from ..core.errors import one_problem
from ..core.exit_codes import DONE, FAILED
from ..core.files import replace_file
from .parser import Parser, parser_of

SCHEMA = "drafthouse.ladder/1"


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "compare-schedule")
    parser.add_argument("plain", type=Path, help="ladder.json without the schedule")
    parser.add_argument("switched", type=Path, help="ladder.json with the schedule")
    parser.add_argument("--write", action="store_true", help="store the comparison in the first file")
    return parser


def read(path: Path) -> Ladder:
    """Return a ladder with its crossover. Raises DrafthouseError for a file that is none."""
    ladder = read_json(path, "a ladder.json", "give the file of a measured ladder")
    schema = ladder.get("schema") if isinstance(ladder, dict) else None
    if schema != SCHEMA:
        raise one_problem(
            "unknown-schema", f"the schema {schema!r}", SCHEMA, "give the file of a measured ladder", str(path)
        )
    whole = checked_ladder(ladder, str(path))
    return {**whole, "crossover": whole.get("crossover") or fill(whole)}


def compare(plain_path: Path, switched_path: Path) -> tuple[Ladder, Tried]:
    """Return the first ladder and what the switch did. Raises DrafthouseError where the two cannot be compared."""
    plain, switched = read(plain_path), read(switched_path)
    if plain.get("profile") != switched.get("profile") or plain.get("load") != switched.get("load"):
        told = [f"{one.get('profile')} ({one.get('load')} loop)" for one in (plain, switched)]
        raise one_problem(
            "not-comparable",
            f"ladders of {told[0]} and {told[1]}",
            "one profile, one kind of load",
            "choose another file",
        )
    found = tried(plain, switched)
    if not any(one["levels"] for one in found["kinds"].values()):
        raise one_problem(
            "not-comparable",
            "no kind and level in common",
            "at least one",
            "measure the same levels again",
        )
    return plain, found


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, show and keep; return the exit code."""
    given = options().parse_args(argv)
    plain, found = compare(given.plain, given.switched)
    for kind, one in found["kinds"].items():
        print(f"{kind}: {one['sentence']}")
    if given.write:
        kept = {**plain, "schedule": {**(plain.get("schedule") or {}), "tried": found}}
        replace_file(given.plain, json.dumps(kept, indent=1) + "\n", None)
    failed = [one for one in found["kinds"].values() if one["keeps"] is False or one["mends"] is False]
    return FAILED if failed else DONE
