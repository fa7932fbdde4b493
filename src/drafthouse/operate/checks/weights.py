"""The check of the weights: each as it was verified. Pure."""

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
    """Whether each of the profile's weights lies as it was verified; they are named by their ids."""
    findings = []
    for item in resolved["weights"]:
        finding = _finding(resolved["profile"], item, facts["weights"][item["id"]])
        findings.append(replace(finding, name=f"weights {item['id']}"))
    return findings


def _finding(profile: str, item: WeightItem, found: WeightFacts) -> Finding:
    needed = f"every file of {item['name']} as verified"
    fetch, verify = f"make weights PROFILE={profile}", f"make verify PROFILE={profile}"
    if not found["there"]:
        return fail(f"nothing at {item['path']}", needed, fetch)
    if item["source"] == "path":
        return ok(f"{item['path']} exists; weights provided by the site are not verified")
    if found["link"]:
        return ok(f"{item['path']} links to {found['link']}; make verify checks its contents", needed)
    if not found["files"]:
        return fail(f"{item['path']} was never verified", needed, verify)
    if found["changed"]:
        changed = count(len(found["changed"]), "file")
        shown = ", ".join(found["changed"][:3])
        if len(found["changed"]) > 3:
            shown += " …"
        return fail(f"{changed} of {found['files']} missing or changed since verification: {shown}", needed, verify)
    if not found["complete"]:
        return fail(f"{found['files']} files, an unfinished download", needed, fetch)
    if item["source"] == "hub" and not _same_revision(item["details"], found):
        present = f"{found['repo']} at {found['commit'] or found['asked']}"
        return fail(present, f"{item['details']['repo']} at {item['details']['revision']}", fetch)
    return ok(f"{count(found['files'], 'file')} as verified", needed)


def _same_revision(details: HubSource, found: WeightFacts) -> bool:
    return found["repo"] == details["repo"] and details["revision"] in (found["asked"], found["commit"])
