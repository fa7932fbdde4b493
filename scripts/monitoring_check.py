#!/usr/bin/env python3
"""Have promtool check the monitoring's rules: of every profile, without and with a gateway, of every engine, of fleets.

A line for each different rendering of templates/monitoring/rules.yml.j2 and fleet_rules.yml.j2. promtool is the
machine's own, or that of Debian's package prometheus, unpacked into .cache.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from _clone import parser_of, run

from drafthouse.addons import fleet_monitoring
from drafthouse.addons.monitoring import watched
from drafthouse.addons.prometheus_rules import SERIES, Limits, Pace, Watched, rules_file
from drafthouse.cli.profile_arguments import inventory_of
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.core.exit_codes import DONE
from drafthouse.host.deb_unpack import ensure
from drafthouse.host.debian_programs import PROMTOOL
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File

TEMPLATES = ROOT / "templates"


def main() -> int:
    """Print what promtool says of each rendering; raise DrafthouseError where it takes one for wrong."""
    parser_of(__doc__).parse_args()
    promtool = ensure(PROMTOOL, "", ROOT / ".cache" / "tools" / "promtool").path
    problems = []
    for title, file in rendered():
        with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
            Path(folder, file["path"]).write_text(file["content"], "utf-8")
            words = [promtool, "check", "rules", file["path"]]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        said = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else ["FAILED"]
        print(f"{title}: {' '.join(said).strip()}")
        if done.returncode:
            found = (done.stderr or done.stdout).strip()
            problems.append(
                Problem("program-failed", found, "rules that Prometheus takes", "correct them", "templates/monitoring")
            )
    if problems:
        raise DrafthouseError(problems)
    return DONE


def rendered() -> Iterator[tuple[str, File]]:
    """Yield each rendering under its title: of boxes, and of fleets of one engine, of all and of none with counters."""
    for what, names in seen().items():
        parts = [part for part in ("node", "gpu", "gateway") if getattr(what, part)]
        title = f"{', '.join([what.dialect or 'no counters', *parts])}; {what.log} ({', '.join(sorted(names))})"
        yield title, rules_file(TEMPLATES, "rules.yml", what, Pace(), Limits())
    for dialects in ([], *([name] for name in SERIES), list(SERIES)):
        file = fleet_monitoring.rules_file(TEMPLATES, "fleet_rules.yml", dialects, Pace(), Limits())
        yield f"a fleet; {', '.join(dialects) or 'no counters'}", file


@functools.cache
def seen() -> dict[Watched, set[str]]:
    """Return what there is to watch on some box, and whose it is."""
    # Some engine shows its counters in newer versions than the profiles run.
    found = {Watched(name, node=True, gpu=True, gateway=True, log="its log"): {"every part"} for name in SERIES}
    for name in load_house(ROOT).profiles:
        site = {**site_of_inventory(inventory_of(name)), "monitoring": {"enabled": True}}
        for gateway in (False, True):
            wished = resolved_profile(name, {**site, "gateway": gateway})["monitoring"]
            if wished:
                found.setdefault(watched(wished), set()).add(name)
    return found


if __name__ == "__main__":
    run(main)
