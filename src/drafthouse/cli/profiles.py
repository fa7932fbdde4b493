"""List the profiles, or name the inventory that one of them is for.

Examples:
  drafthouse profiles
  drafthouse profiles --json
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.exit_codes import DONE, FAILED
from ..core.table import table
from ..profiles.catalog import load_house
from ..profiles.workspace import ROOT
from .parser import Parser, parser_of
from .profile_arguments import inventory_of


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "profiles")
    parser.add_argument("--inventory", metavar="PROFILE", help="print the inventory of this profile and nothing else")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of profiles, or one profile's inventory."""
    given = options().parse_args(argv)
    if given.inventory:
        print(inventory_of(given.inventory))
        return DONE
    house = load_house(ROOT)
    rows = []
    for name, profile in sorted(house.profiles.items()):
        # Of a broken profile anything may stand there.
        speculation: Any = profile.get("speculation") if isinstance(profile.get("speculation"), dict) else {}
        hardware, target, draft = (
            house.hardware.get(str(profile.get("hardware"))),
            house.models.get(str(profile.get("target"))),
            house.models.get(str(speculation.get("draft"))),
        )
        rows.append(
            [
                name,
                hardware["name"] if hardware else "?",
                target["name"] if target else "?",
                draft["name"] if draft else "none: a lookup",
                f"{profile.get('engine')}, {speculation.get('method')}, K={speculation.get('num_speculative_tokens')}",
            ]
        )
    print(table(["profile", "hardware", "target", "draft", "engine and method"], rows, width=26))
    for name, problems in house.broken.items():
        print(f"\n{name} cannot be used:")
        for problem in problems:
            print("\n".join(problem.lines()))
    return FAILED if house.broken else DONE
