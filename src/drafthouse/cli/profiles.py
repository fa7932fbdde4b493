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
from ..profiles.catalog import Catalog
from ..profiles.model_names import find_model
from ..profiles.workspace import catalog_for
from .parser import Parser, parser_of, print_json
from .profile_arguments import inventory_of

#: From this width, in characters, the table has a column for the draft.
_WIDE = 140


def options() -> Parser:
    """The argument parser of `drafthouse profiles`."""
    parser = parser_of(__doc__, "profiles")
    parser.add_argument("--inventory", metavar="PROFILE", help="print only the inventory of this profile")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of profiles, or one profile's inventory."""
    args = options().parse_args(argv)
    if args.inventory:
        print(inventory_of(args.inventory))
        return DONE
    catalog = catalog_for()  # the catalogue and the profiles
    rows = [_row(catalog, name) for name in sorted(catalog.profiles)]
    status = FAILED if catalog.broken else DONE
    if args.json:
        print_json(
            "profiles",
            {
                "profiles": rows,
                "broken": _as_data(catalog.broken),
                "broken_hardware": _as_data(catalog.broken_hardware),
                "broken_engines": _as_data(catalog.broken_engines),
                "broken_models": _as_data(catalog.broken_models),
            },
        )
        return status
    print(_table(catalog, rows))
    for name, problems in catalog.broken.items():
        print(f"\n{name} cannot be used:\n{describe(problems)}")
    if entries := catalog.broken_entries():
        print(f"\nthese entries of yours cannot be used; the others can:\n{describe(entries)}")
    return status


def _table(catalog: Catalog, rows: Sequence[_Row]) -> str:
    """The table of profiles as text; a wide terminal also gets the column "draft"."""
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
            cell.append(_draft_source(catalog, row))
        cells.append([*cell, f"{row['engine']}, {row['method']}, {row['num_speculative_tokens']}"])
    return table([*head, "engine, method, tokens"], cells)


def _short(name: str | None) -> str:
    """A model's name without its organisation, and without the description of its files; "?" for None."""
    return name.rpartition("/")[2].partition(",")[0] if name else "?"


def _as_data(broken: Mapping[str, Sequence[Problem]]) -> dict[str, list[dict[str, str]]]:
    """The problems by name, for JSON."""
    problems_by_name = {}
    for name, problems in broken.items():
        problems_by_name[name] = [problem.as_dict() for problem in problems]
    return problems_by_name


def _draft_source(catalog: Catalog, row: _Row) -> str:
    """The source of the draft tokens in a profile without a draft model: a built-in head or a lookup."""
    if engine := catalog.engines.get(str(row["engine"])):
        method = engine["methods"].get(str(row["method"]))
        if method and method["draft"] == "builtin":
            return "the target's own head"
    return "none: a lookup"


class _Row(TypedDict):
    """A profile as the list shows it; None for a name that the catalogue lacks. A broken one may have other types."""

    profile: str
    hardware: str | None  # full name, as the next two
    target: str | None
    draft: str | None  # None too without a draft model
    engine: str  # id
    method: str
    num_speculative_tokens: int


def _full_name(catalog: Catalog, model: object) -> str | None:
    """The catalogue's full name of the model that a profile names; None for a model without an entry."""
    entry = catalog.models.get(find_model(str(model), catalog.models) or "")
    return entry["name"] if entry else None


def _row(catalog: Catalog, name: str) -> _Row:
    """The row of a profile; a broken one is listed too, and its keys may hold anything."""
    profile: Any = catalog.profiles[name]
    speculation: Any = profile.get("speculation")
    if not isinstance(speculation, dict):
        speculation = {}
    hardware = catalog.hardware.get(str(profile.get("hardware")))
    return {
        "profile": name,
        "hardware": hardware["name"] if hardware else None,
        "target": _full_name(catalog, profile.get("target")),
        "draft": _full_name(catalog, speculation.get("draft")),
        "engine": profile.get("engine"),
        "method": speculation.get("method"),
        "num_speculative_tokens": speculation.get("num_speculative_tokens"),
    }
