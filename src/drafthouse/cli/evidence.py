"""Check a folder of evidence from a GPU, and write it into the profile's `verified`.

Examples:
  drafthouse evidence check evidence/2026-11-27-nvidia-h100-80gb-hbm3-h100-llama33-eagle3
  drafthouse evidence make reports/h100-llama33-eagle3/20261127-101112-gpu1
  drafthouse evidence add evidence/2026-11-27-nvidia-h100-80gb-hbm3-h100-llama33-eagle3

`make` writes the folder from a kept report; make test-gpu writes it by itself. `add` refuses a folder whose profile or
engine version has changed since, whose engine held no GPU memory, or that holds made-up answers, prompts or secrets.
docs/gpu-lane.md says what a folder holds, CONTRIBUTING.md how it comes here by a pull request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import one_problem
from ..core.exit_codes import DONE
from ..core.files import replace_file
from ..core.places import ROOT, WORK
from ..profiles.catalog import Catalog
from ..profiles.own_entries import shown_path
from ..profiles.workspace import catalog_for, resolved_profile, site_of_inventory
from ..report.archive import find, read_kept
from ..report.evidence import (
    NO_PROFILE,
    CheckedEvidence,
    EvidenceFacts,
    add_verified_entry,
    check_profile,
    evidence_report,
    profile_hash,
    read,
    write,
)
from .main import version
from .parser import Parser, parser_of, reports_option


def options() -> Parser:
    """The argument parser of `drafthouse evidence`."""
    parser = parser_of(__doc__, "evidence")
    parser.add_argument("action", choices=("check", "add", "make"), help="check a folder, add it, or make one")
    parser.add_argument("folder", type=Path, help="the folder of evidence; for make a kept report, as for compare")
    reports_option(parser)
    parser.add_argument("--to", type=Path, default=WORK / "evidence", metavar="DIR", help="where make writes")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Check an evidence folder, add it to its profile, or make one from a report."""
    args = options().parse_args(argv)
    catalog = catalog_for()  # the catalogue and the profiles
    if args.action == "make":
        proven = of_report(find(args.reports, str(args.folder), "REPORT"), args.to, catalog)
        print(f"wrote {proven.folder}; next: drafthouse evidence add {proven.folder}")
        return DONE
    proven = read(args.folder.resolve())
    _check(proven, catalog)
    print(f"{proven.folder.name}: {_summary(proven)}")
    if args.action == "add":
        _add(proven, ROOT / catalog.file(proven.facts["profile"]))
    return DONE


def of_report(report: Path, to: Path, catalog: Catalog) -> CheckedEvidence:
    """Write an evidence folder for a kept report below ``to``. Raises DrafthouseError where `check` would refuse it."""
    kept = read_kept(report)
    name = kept.report["profile"]
    gpus = []
    if machine := kept.results["speculative"].get("machine"):
        gpus = machine["before"].get("gpus") or []
    if not gpus or name not in catalog.profiles:
        found = f"a run of {name} on {gpus[0]['name'] if gpus else 'no GPU'}"
        needed = "a run of one of the profiles on an NVIDIA GPU"
        raise one_problem("evidence-refused", found, needed, "measure a profile on a GPU", str(report))
    measured = evidence_report(kept, version())
    row: Any = measured["row"]
    facts: EvidenceFacts = {
        "schema": "drafthouse.evidence/1",
        "day": row["measured"],
        "gpu": row["gpus"][0],
        "driver": row["driver"],
        "profile": name,
        "profile_sha256": profile_hash(catalog.profiles[name]),
        "engine": row["engine"],
        "engine_version": row["engine_version"],
        "verdict": row["verdict"],
        "levels": [],
        "drafthouse": version(),
        "files": {},
    }
    return write(to / folder_name(facts["day"], facts["gpu"], name), facts, {"report.json": measured})


def folder_name(day: str, gpu: str, profile: str) -> str:
    """The name of an evidence folder: small letters, digits and hyphens."""
    return "-".join([day, *re.findall(r"[a-z0-9]+", f"{gpu} {profile}".lower())])


def _check(proven: CheckedEvidence, catalog: Catalog) -> None:
    """Raise DrafthouseError where the profile was changed since it was measured, or does not exist."""
    name = proven.facts["profile"]
    if name == NO_PROFILE:  # a run of the GPU tests alone, without a profile
        return
    if name not in catalog.profiles:
        do = "commit the profile with its evidence"
        raise one_problem("evidence-refused", f"the profile {name}", "one of profiles/", do, str(proven.folder))
    resolved = resolved_profile(name, site_of_inventory("workstation"))
    check_profile(proven, catalog.profiles[name], resolved["engine"]["version"])


def _summary(proven: CheckedEvidence) -> str:
    """The evidence as text: for the GPU tests alone their levels, for a profile its verdict and engine."""
    facts = proven.facts
    if facts["profile"] == NO_PROFILE:
        return f"levels {', '.join(map(str, facts['levels']))} on {proven.gpu_and_day}, no profile"
    return f"{facts['profile']} {facts['verdict']} on {proven.gpu_and_day}, {facts['engine']} {facts['engine_version']}"


def _add(proven: CheckedEvidence, path: Path) -> None:
    """Write the GPU and the day into ``verified`` of the profile at ``path``; docs/proof.md reads the folder.

    Evidence of the GPU tests alone has no profile: nothing is written. Raises DrafthouseError for a folder elsewhere.
    """
    if proven.folder.parent != ROOT / "evidence":
        needed = f"a folder in {ROOT / 'evidence'}"
        raise one_problem("evidence-refused", str(proven.folder), needed, "move it there")
    if proven.facts["profile"] != NO_PROFILE:
        before = path.read_text("utf-8")
        after = add_verified_entry(before, proven.gpu_and_day)
        change = "unchanged"
        if after != before:
            replace_file(path, after, mode=0o644)
            change = "wrote"
        print(f"{change}: {shown_path(ROOT, path)}")
    print("next: make docs, which writes docs/proof.md; then commit both")
