"""List the weights on this machine that no profile uses; --remove removes them.

Example:
  drafthouse prune --inventory local

Weights without one of our notes beside them are never removed, nor what a kept release needs (make history, make
rollback). For a box over SSH run it on that box, with its models folder and its home.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ..core.errors import DrafthouseError
from ..core.exit_codes import DONE
from ..core.table import table
from ..operate.prune import Entry, look, remove, used_by_profiles, used_by_releases
from ..profiles.inventory_variables import site_on
from ..profiles.workspace import catalog_for
from .parser import Parser, parser_of, print_json


def options() -> Parser:
    """The argument parser of `drafthouse prune`."""
    parser = parser_of(__doc__, "prune")
    parser.add_argument("--inventory", default="local", help="inventory that defines models_dir (default: %(default)s)")
    parser.add_argument("--models-dir", type=Path, help="models folder (default: the inventory's)")
    parser.add_argument("--home", type=Path, help="home of the box, with its releases (default: the inventory's)")
    parser.add_argument("--remove", action="store_true", help="remove unused weights and unfinished downloads")
    parser.add_argument("--json", action="store_true", help="print the list as JSON; remove nothing")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """List the weights; with --remove, remove those that nothing uses."""
    args = options().parse_args(argv)
    site, _ = site_on(args.inventory)
    models_dir = args.models_dir or Path(site["models_dir"])
    if args.models_dir is None and not models_dir.exists() and not args.json:
        print(f"no weights yet: {models_dir} does not exist")
        return DONE
    catalog = catalog_for(args.inventory)
    # A broken profile or entry may name weights that are then unknown and must not be removed.
    broken = [*chain.from_iterable(catalog.broken.values()), *catalog.broken_entries()]
    if broken:
        raise DrafthouseError(list(dict.fromkeys(broken)))
    used = used_by_profiles(catalog.profiles, catalog.models) | used_by_releases(args.home or site["home"], models_dir)
    entries = look(models_dir, used)
    if args.json:
        rows = [
            {
                "path": str(entry.path), "state": entry.state, "bytes": entry.size, "last_used_s": entry.last_used,
                "removable": entry.removable,
            }
            for entry in entries
        ]  # fmt: skip
        print_json("prune", {"models_dir": str(models_dir), "weights": rows})
        return DONE
    print(f"{models_dir}\n")
    print(table(["weights", "state", "GB", "last used"], [_row(entry, models_dir) for entry in entries]))
    unneeded = [entry for entry in entries if entry.removable]
    freed = sum(entry.size for entry in unneeded) / 1e9  # GB
    if not unneeded:
        print("\nnothing to remove")
    elif args.remove:
        for folder in remove(entries):
            print(f"kept, with files that are not ours: {folder}")
        print(f"\nremoved {freed:.2f} GB")
    else:
        print(f"\n{freed:.2f} GB that no profile uses; drafthouse prune --remove removes them")
    return DONE


def _row(entry: Entry, models_dir: Path) -> list[str]:
    """The row of the table: path below ``models_dir``, state, GB, and the day of the last use."""
    used = time.strftime("%Y-%m-%d", time.localtime(entry.last_used))
    return [str(entry.path.relative_to(models_dir)), entry.state, f"{entry.size / 1e9:.2f}", used]
