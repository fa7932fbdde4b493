"""All that is rendered for a profile: what a box gets, and what a person is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory

PROFILES = list(load_catalog(ROOT).profiles)


@cache
def resolved(profile: str) -> Any:
    """The resolved profile for one and the same site: nothing of this machine is in it."""
    return resolved_profile(profile, site_of_inventory("workstation"))


@cache
def rendered(profile: str) -> dict[str, str]:
    """Every file's text by its path: `plan.txt`, what is there once, and `ARM/FILE`."""
    found: Any = resolved(profile)
    files = {"plan.txt": plan_text(found) + "\n"}
    files |= {file["path"]: file["content"] for file in found["extras"]}
    for arm, data in found["arms"].items():
        files |= {f"{arm}/{file['path']}": file["content"] for file in data["files"]}
    return files
