"""The doctor's check of the firewall: Drafthouse's iptables chains are complete, and come first in their parents.

The role applies rules on trial and confirms them once a new connection works; confirmed rules are kept in a file. The
functions are pure.
"""

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
    """Check that the rules in force are the ones that the role confirmed, for IPv4 and IPv6.

    It does not apply where the facts have a reason why the firewall was not read.
    """
    firewall_facts = facts["firewall"]
    needed = "our chains as confirmed, first in INPUT and DOCKER-USER, for IPv4 and IPv6"
    if firewall_facts["not_here"]:
        return not_here(firewall_facts["not_here"])
    faults = _faults(resolved, firewall_facts)
    if faults:
        return fail("; ".join(faults), needed, "run site.yml --tags host, which restores and verifies them")
    kept = sum(len(family["kept"]) for family in firewall_facts["families"].values())
    return ok(f"{kept} rules in force, as confirmed", needed)


def _faults(resolved: Run, firewall_facts: FirewallFacts) -> list[str]:
    """What is wrong, as texts; [] if nothing is.

    First at most one kind of fault for each IP version: iptables-save fails, no rules were ever confirmed, the rules in
    force differ from the confirmed ones, or these leave a port open. Then an unfinished trial, and disabled units.
    """
    faults = []
    to_protect = {resolved["site"]["port"], *monitoring_of(resolved)["open_ports"]}
    if resolved["gateway"]:
        to_protect.add(resolved["gateway"]["port"])
    for version, family in sorted(firewall_facts["families"].items()):
        if family["error"]:
            faults.append(f"IPv{version}: {family['error']}")
        elif not family["kept"]:
            faults.append(f"IPv{version}: our rules were never confirmed")
        elif not rules.in_place(rules.ours(family["saved"]), family["kept"]):
            faults.append(f"IPv{version}: {_difference(family)}")
        else:
            unprotected = sorted(to_protect - _protected_ports(family["kept"]))
            faults += [f"IPv{version}: port {port} is not protected" for port in unprotected]
    if firewall_facts["pending"]:
        faults.append("rules are in their trial period and not confirmed yet")
    if not firewall_facts["enabled"]:
        faults.append("the units that restore them at boot are not enabled")
    return faults


def _difference(family: FamilyFacts) -> str:
    """How the rules in force differ from the confirmed ones: in their lines, else in the place of our chains."""
    in_force = rules.ours(family["saved"])
    kept = family["kept"]
    present_rules = list(itertools.chain(*in_force.rules.values()))
    missing = sum(line not in present_rules for line in kept)
    unknown = sum(line not in kept for line in present_rules)
    if missing or unknown:
        return f"{missing} of {len(kept)} rules missing, {unknown} unknown rules in our chains"
    jumps = ", ".join(f"{chain} from place {place} of {parent}" for parent, chain, place in in_force.jumps)
    return f"our chains are not first ({jumps or 'nothing jumps to them'})"


def _protected_ports(lines: Sequence[str]) -> set[int]:
    """The ports that Drafthouse's INPUT chain drops: closed to every client that no earlier rule accepts."""
    protected = set()
    for rule in lines:
        words = rule.split()
        if words[:2] == ["-A", rules.INPUT] and words[-1] == "DROP" and "--dport" in words:
            protected.add(int(words[words.index("--dport") + 1]))
    return protected
