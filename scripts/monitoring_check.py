#!/usr/bin/env python3
"""Check the monitoring's rules with promtool: for every engine, and every profile without and with a gateway.

Prints a line for each different rendering of templates/monitoring/rules.yml.j2. promtool is in Debian's package
prometheus.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from _clone import parser_of, run

from drafthouse.addons.monitoring import watched_of
from drafthouse.addons.prometheus_rules import SERIES, Limits, Pace, Watched, rules_file
from drafthouse.cli.profile_arguments import inventory_of
from drafthouse.core.errors import DrafthouseError, Problem, one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File

TEMPLATES = ROOT / "templates"


def main() -> int:
    """Print promtool's summary of each rendering. Raises DrafthouseError if it finds an error."""
    parser_of(__doc__).parse_args()
    promtool = shutil.which("promtool")
    if promtool is None:
        raise one_problem("program-missing", "no promtool", "what checks rules", "apt-get install prometheus")
    problems = []
    for title, file in rendered():
        with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
            Path(folder, file["path"]).write_text(file["content"], "utf-8")
            command = [promtool, "check", "rules", file["path"]]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        summary = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else ["FAILED"]
        print(f"{title}: {' '.join(summary).strip()}")
        if done.returncode:
            found = (done.stderr or done.stdout).strip()
            problems.append(
                Problem("program-failed", found, "rules that Prometheus takes", "correct them", "templates/monitoring")
            )
    if problems:
        raise DrafthouseError(problems)
    return DONE


def rendered() -> Iterator[tuple[str, File]]:
    """Each rendering, with its title."""
    for watched, names in seen().items():
        parts = [part for part in ("node", "gpu", "gateway") if getattr(watched, part)]
        title = f"{', '.join([watched.dialect or 'no counters', *parts])}; {watched.log} ({', '.join(sorted(names))})"
        yield title, rules_file(TEMPLATES, "rules.yml", watched, Pace(), Limits())


@functools.cache
def seen() -> dict[Watched, set[str]]:
    """What is watched on a box, for all cases, each with the names of its profiles."""
    # Every engine by itself too: some have counters only in newer versions than those of the profiles.
    found = {Watched(name, node=True, gpu=True, gateway=True, log="its log"): {"every part"} for name in SERIES}
    for name in load_catalog(ROOT).profiles:
        site = {**site_of_inventory(inventory_of(name)), "monitoring": {"enabled": True}}
        for gateway in (False, True):
            wished = resolved_profile(name, {**site, "gateway": gateway})["monitoring"]
            if wished:
                found.setdefault(watched_of(wished), set()).add(name)
    return found


if __name__ == "__main__":
    run(main)
