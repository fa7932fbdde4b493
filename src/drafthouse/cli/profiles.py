"""List the profiles, or print the inventory of one of them.

Examples:
  drafthouse profiles
  drafthouse profiles --json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..core.errors import Problem, describe
from ..core.exit_codes import DONE, FAILED
from ..core.table import table, terminal_columns
from ..profiles.catalog import House
from ..profiles.model_names import find_model
from ..profiles.workspace import house_for
from .parser import Parser, parser_of, print_json
from .profile_arguments import inventory_of

#: Columns from which the table has room for drafts.
_WIDE = 140


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "profiles")
    parser.add_argument("--inventory", metavar="PROFILE", help="print only the inventory of this profile")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of profiles, or one profile's inventory."""
    given = options().parse_args(argv)
    if given.inventory:
        print(inventory_of(given.inventory))
        return DONE
    house = house_for()
    rows = [_row(house, name) for name in sorted(house.profiles)]
    if given.json:
        print_json(
            "profiles",
            {
                "profiles": rows,
                "broken": _told(house.broken),
                "broken_hardware": _told(house.broken_hardware),
                "broken_engines": _told(house.broken_engines),
                "broken_models": _told(house.broken_models),
            },
        )
        return FAILED if house.broken else DONE
    print(_table(house, rows))
    for name, problems in house.broken.items():
        print(f"\n{name} cannot be used:\n{describe(problems)}")
    if entries := house.broken_entries():
        print(f"\nthese entries of yours cannot be used; the others can:\n{describe(entries)}")
    return FAILED if house.broken else DONE


def _table(house: House, rows: Sequence[_Row]) -> str:
    """The profiles; what they draft with too where the terminal is wide."""
    wide = terminal_columns() >= _WIDE
    head = ["profile", "hardware", "target", *(["draft"] if wide else []), "engine, method, tokens"]
    cells = []
    for row in rows:
        hardware = (row["hardware"] or "?").replace("NVIDIA ", "").partition(" with ")[0]
        cell = [row["profile"], hardware, _short(row["target"])]
        if wide:
            cell.append(_short(row["draft"]) if row["draft"] else _without(house, row))
        cells.append([*cell, f"{row['engine']}, {row['method']}, {row['num_speculative_tokens']}"])
    return table(head, cells)


def _short(name: str | None) -> str:
    """The name of a model, without its organisation and what is said of its files."""
    return name.rpartition("/")[2].partition(",")[0] if name else "?"


def _told(broken: Mapping[str, Sequence[Problem]]) -> dict[str, list[dict[str, str]]]:
    return {name: [problem.as_dict() for problem in problems] for name, problems in broken.items()}


def _without(house: House, row: _Row) -> str:
    """What a profile drafts with that names no draft."""
    engine = house.engines.get(str(row["engine"]))
    method = engine["methods"].get(str(row["method"])) if engine else None
    return "the target's own head" if method and method["draft"] == "builtin" else "none: a lookup"


class _Row(TypedDict):
    """A profile in the list; None where it is broken there, or has no draft."""

    profile: str
    hardware: str | None
    target: str | None
    draft: str | None
    engine: str
    method: str
    num_speculative_tokens: int


def _row(house: House, name: str) -> _Row:
    # Of a broken profile anything may stand there.
    profile: Any = house.profiles[name]
    speculation: Any = profile.get("speculation") if isinstance(profile.get("speculation"), dict) else {}
    hardware = house.hardware.get(str(profile.get("hardware")))
    words = (str(profile.get("target")), str(speculation.get("draft")))
    target, draft = (house.models.get(find_model(word, house.models) or "") for word in words)
    target_name, draft_name = (entry["name"] if entry else None for entry in (target, draft))
    return {
        "profile": name,
        "hardware": hardware["name"] if hardware else None,
        "target": target_name,
        "draft": draft_name,
        "engine": profile.get("engine"),
        "method": speculation.get("method"),
        "num_speculative_tokens": speculation.get("num_speculative_tokens"),
    }
