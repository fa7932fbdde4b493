#!/usr/bin/env python3
"""Have promtool check the monitoring's rules: of every profile, without and with a gateway, of every engine.

A line for each different rendering of templates/monitoring/rules.yml.j2. promtool comes with Debian's package
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
    """Print what promtool says of each rendering; raise DrafthouseError where it takes one for wrong."""
    parser_of(__doc__).parse_args()
    promtool = shutil.which("promtool")
    if promtool is None:
        raise one_problem("program-missing", "no promtool", "what checks rules", "apt-get install prometheus")
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
    """Each rendering under its title."""
    for what, names in seen().items():
        parts = [part for part in ("node", "gpu", "gateway") if getattr(what, part)]
        title = f"{', '.join([what.dialect or 'no counters', *parts])}; {what.log} ({', '.join(sorted(names))})"
        yield title, rules_file(TEMPLATES, "rules.yml", what, Pace(), Limits())


@functools.cache
def seen() -> dict[Watched, set[str]]:
    """What there is to watch on some box, and whose it is."""
    # Some engine shows its counters in newer versions than the profiles run.
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
