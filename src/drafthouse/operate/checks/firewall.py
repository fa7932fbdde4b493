"""The check of the firewall: our chains as the role confirmed them, first in their parents, both IP families. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...host.firewall import rules
from ..doctor.expected import monitoring_of
from .finding import Finding, fail, not_here, ok

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts, FamilyFacts, FirewallFacts
    from drafthouse.profiles.resolved_types import Run


def firewall(resolved: Run, facts: DoctorFacts) -> Finding:
    """What differs from the rules that the role confirmed."""
    found = facts["firewall"]
    needed = "our chains as confirmed, first in INPUT and DOCKER-USER, for IPv4 and IPv6"
    if found["not_here"]:
        return not_here(found["not_here"])
    faults = _faults(resolved, found)
    if faults:
        return fail("; ".join(faults), needed, "run site.yml --tags host, which restores and verifies them")
    kept = sum(len(family["kept"]) for family in found["families"].values())
    return ok(f"{kept} rules in force, as confirmed", needed)


def _faults(resolved: Run, found: FirewallFacts) -> list[str]:
    faults = []
    guarded = {resolved["site"]["port"], *monitoring_of(resolved)["open_ports"]}
    if resolved["gateway"]:
        guarded.add(resolved["gateway"]["port"])
    for version, family in sorted(found["families"].items()):
        if family["error"]:
            faults.append(f"IPv{version}: {family['error']}")
        elif not family["kept"]:
            faults.append(f"IPv{version}: our rules were never confirmed")
        elif not rules.in_place(rules.ours(family["saved"]), family["kept"]):
            faults.append(f"IPv{version}: {_difference(family)}")
        else:
            open_ports = sorted(guarded - _guarded(family["kept"]))
            faults += [f"IPv{version}: port {port} is not protected" for port in open_ports]
    if found["pending"]:
        faults.append("rules are in their trial period and not confirmed yet")
    if not found["enabled"]:
        faults.append("the units that restore them at boot are not enabled")
    return faults


def _difference(family: FamilyFacts) -> str:
    ours, kept = rules.ours(family["saved"]), family["kept"]
    present = list(itertools.chain(*ours.rules.values()))
    missing = sum(line not in present for line in kept)
    more = sum(line not in kept for line in present)
    if missing or more:
        return f"{missing} of {len(kept)} rules missing, {more} unknown rules in our chains"
    jumps = ", ".join(f"{chain} from place {place} of {parent}" for parent, chain, place in ours.jumps)
    return f"our chains are not first ({jumps or 'nothing jumps to them'})"


def _guarded(lines: Sequence[str]) -> set[int]:
    """The ports for which our INPUT chain ends in DROP."""
    found = set()
    for rule in lines:
        words = rule.split()
        if words[:2] == ["-A", rules.INPUT] and words[-1] == "DROP" and "--dport" in words:
            found.add(int(words[words.index("--dport") + 1]))
    return found
