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
    status = FAILED if house.broken else DONE
    if given.json:
        print_json(
            "profiles",
            {
                "profiles": rows,
                "broken": _as_data(house.broken),
                "broken_hardware": _as_data(house.broken_hardware),
                "broken_engines": _as_data(house.broken_engines),
                "broken_models": _as_data(house.broken_models),
            },
        )
        return status
    print(_table(house, rows))
    for name, problems in house.broken.items():
        print(f"\n{name} cannot be used:\n{describe(problems)}")
    if entries := house.broken_entries():
        print(f"\nthese entries of yours cannot be used; the others can:\n{describe(entries)}")
    return status


def _table(house: House, rows: Sequence[_Row]) -> str:
    """The profiles; what they draft with too where the terminal is wide."""
    wide = terminal_columns() >= _WIDE
    head = ["profile", "hardware", "target"]
    if wide:
        head.append("draft")
    cells = []
    for row in rows:
        hardware = (row["hardware"] or "?").replace("NVIDIA ", "").partition(" with ")[0]
        cell = [row["profile"], hardware, _short(row["target"])]
        if wide and row["draft"]:
            cell.append(_short(row["draft"]))
        elif wide:
            cell.append(_without(house, row))
        cells.append([*cell, f"{row['engine']}, {row['method']}, {row['num_speculative_tokens']}"])
    return table([*head, "engine, method, tokens"], cells)


def _short(name: str | None) -> str:
    """The name of a model, without its organisation and what is said of its files."""
    return name.rpartition("/")[2].partition(",")[0] if name else "?"


def _as_data(broken: Mapping[str, Sequence[Problem]]) -> dict[str, list[dict[str, str]]]:
    problems_by_name = {}
    for name, problems in broken.items():
        problems_by_name[name] = [problem.as_dict() for problem in problems]
    return problems_by_name


def _without(house: House, row: _Row) -> str:
    """What a profile drafts with that names no draft."""
    if engine := house.engines.get(str(row["engine"])):
        method = engine["methods"].get(str(row["method"]))
        if method and method["draft"] == "builtin":
            return "the target's own head"
    return "none: a lookup"


class _Row(TypedDict):
    """A profile in the list; None where it is broken there, or has no draft."""

    profile: str
    hardware: str | None
    target: str | None
    draft: str | None
    engine: str
    method: str
    num_speculative_tokens: int


def _full_name(house: House, model: object) -> str | None:
    """The name in the catalogue of a model as a profile names it; None for one that is not there."""
    entry = house.models.get(find_model(str(model), house.models) or "")
    return entry["name"] if entry else None


def _row(house: House, name: str) -> _Row:
    # Of a broken profile anything may stand there.
    profile: Any = house.profiles[name]
    speculation: Any = profile.get("speculation")
    if not isinstance(speculation, dict):
        speculation = {}
    hardware = house.hardware.get(str(profile.get("hardware")))
    return {
        "profile": name,
        "hardware": hardware["name"] if hardware else None,
        "target": _full_name(house, profile.get("target")),
        "draft": _full_name(house, speculation.get("draft")),
        "engine": profile.get("engine"),
        "method": speculation.get("method"),
        "num_speculative_tokens": speculation.get("num_speculative_tokens"),
    }
