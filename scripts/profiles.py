#!/usr/bin/env python3
"""List the profiles, or name the inventory that one of them is for."""

from __future__ import annotations

import argparse
from typing import Any

from _clone import run
from _profile import inventory_of

from drafthouse.core.exit_codes import DONE, FAILED
from drafthouse.core.table import table
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT


def main() -> int:
    """Print the table of profiles, or one profile's inventory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", metavar="PROFILE", help="print the inventory of this profile and nothing else")
    given = parser.parse_args()
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


if __name__ == "__main__":
    run(main)
