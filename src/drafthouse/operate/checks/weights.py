"""The doctor's check that the weights on the box are still the verified files.

A verification note beside the weights lists each file with its hash and its size and times; the facts say what differs
from it now. The functions are pure: they read facts, not the box.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.format import count
from .finding import Finding, fail, ok

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts, WeightFacts
    from drafthouse.profiles.catalog_types import HubSource
    from drafthouse.profiles.resolved_types import Run, WeightItem


def weights(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """Check each weights item of the profile against its last verification: one finding per item, named by its id."""
    findings = []
    for item in resolved["weights"]:
        finding = _finding(resolved["profile"], item, facts["weights"][item["id"]])
        findings.append(replace(finding, name=f"weights {item['id']}"))
    return findings


def _finding(profile: str, item: WeightItem, on_disk: WeightFacts) -> Finding:
    """The finding for one item. The first of these cases decides.

    1. Nothing is at its path: failed.
    2. The site provides the weights (source ``path``): ok, as they are never verified.
    3. The path is a link, into a cache: ok, as only `make verify` reads what lies behind it.
    4. No verification note, a changed file, an unfinished download, or another revision: failed, in this order.
    5. Else ok.
    """
    needed = f"every file of {item['name']} as verified"
    fetch = f"make weights PROFILE={profile}"
    verify = f"make verify PROFILE={profile}"
    if not on_disk["there"]:
        return fail(f"nothing at {item['path']}", needed, fetch)
    if item["source"] == "path":
        return ok(f"{item['path']} exists; weights provided by the site are not verified")
    if on_disk["link"]:
        return ok(f"{item['path']} links to {on_disk['link']}; make verify checks its contents", needed)
    if not on_disk["files"]:
        return fail(f"{item['path']} was never verified", needed, verify)
    if on_disk["changed"]:
        changed = count(len(on_disk["changed"]), "file")
        names = ", ".join(on_disk["changed"][:3])
        if len(on_disk["changed"]) > 3:
            names += " …"
        return fail(f"{changed} of {on_disk['files']} missing or changed since verification: {names}", needed, verify)
    if not on_disk["complete"]:
        return fail(f"{on_disk['files']} files, an unfinished download", needed, fetch)
    if item["source"] == "hub" and not _same_revision(item["details"], on_disk):
        present = f"{on_disk['repo']} at {on_disk['commit'] or on_disk['asked']}"
        return fail(present, f"{item['details']['repo']} at {item['details']['revision']}", fetch)
    return ok(f"{count(on_disk['files'], 'file')} as verified", needed)


def _same_revision(details: HubSource, on_disk: WeightFacts) -> bool:
    """True if the files are of the profile's repository and revision, a branch's name or a commit."""
    return on_disk["repo"] == details["repo"] and details["revision"] in (on_disk["asked"], on_disk["commit"])
