#!/usr/bin/env python3
"""Say what switching speculation by batch size did, from a ladder without the switch and one with it.

Example:
  scripts/tried.py results/plain/ladder.json results/switched/ladder.json --write

The first ladder offers the schedule (`schedule.command` in it is the run that makes the second one). With --write
the comparison is kept in the first file, under `schedule.tried`, where the report finds it.

Exit code: 0 when the switch keeps what paid and nothing costs any more, 3 when it does not, 1 on a problem (found,
needed, do), 2 for a wrong option.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _clone import parser_of
from ansible_collections.drafthouse.core.plugins.module_utils.crossover import fill
from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError, Problem
from ansible_collections.drafthouse.core.plugins.module_utils.schedule import tried

SCHEMA = "drafthouse.ladder/1"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = parser_of(__doc__)
    parser.add_argument("plain", type=Path, help="ladder.json of the profile as it is")
    parser.add_argument("switched", type=Path, help="ladder.json of the profile with the schedule")
    parser.add_argument("--write", action="store_true", help="keep the comparison in the first file")
    return parser.parse_args(argv)


def read(path: Path) -> dict[str, Any]:
    """Return a ladder with its crossover. Raises HouseError for a file that is none."""
    try:
        ladder = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise HouseError(
            Problem(str(error), "a ladder.json", "give the file of a measured ladder", str(path))
        ) from None
    schema = ladder.get("schema") if isinstance(ladder, dict) else None
    if schema != SCHEMA:
        raise HouseError(Problem(f"the schema {schema!r}", SCHEMA, "give the file of a measured ladder", str(path)))
    return {**ladder, "crossover": ladder.get("crossover") or fill(ladder)}


def compare(plain_path: Path, switched_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first ladder and what the switch did. Raises HouseError where the two cannot be compared."""
    plain, switched = read(plain_path), read(switched_path)
    if plain.get("profile") != switched.get("profile") or plain.get("load") != switched.get("load"):
        told = [f"{one.get('profile')} ({one.get('load')} loop)" for one in (plain, switched)]
        raise HouseError(
            Problem(f"ladders of {told[0]} and {told[1]}", "one profile, one kind of load", "choose another file")
        )
    found = tried(plain, switched)
    if not any(one["levels"] for one in found["kinds"].values()):
        raise HouseError(
            Problem("no kind and level that both ladders have", "at least one", "measure the same levels again")
        )
    return plain, found


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, show and keep; return the exit code."""
    options = parse(argv)
    try:
        plain, found = compare(options.plain, options.switched)
    except HouseError as error:
        print(error, file=sys.stderr)
        return 1
    for kind, one in found["kinds"].items():
        print(f"{kind}: {one['sentence']}")
    if options.write:
        plain["schedule"] = {**(plain.get("schedule") or {}), "tried": found}
        temporary = options.plain.with_suffix(".new")
        temporary.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
        temporary.replace(options.plain)
    failed = [one for one in found["kinds"].values() if one["keeps"] is False or one["mends"] is False]
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
