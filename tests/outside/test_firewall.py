"""Role firewall: our chains come first, guard the API's port over IPv4 and IPv6, and come back with the box."""

from __future__ import annotations

from typing import Any

import pytest

API_PORT = 8000


@pytest.mark.parametrize("version", [4, 6])
def test_our_chains_come_first(host: Any, version: int) -> None:
    chains = [("INPUT", "DRAFTHOUSE-INPUT")]
    if version == 4:  # Docker makes its IPv6 chain only where it is asked for
        chains.append(("DOCKER-USER", "DRAFTHOUSE-DOCKER"))
    for chain, ours in chains:
        rules = [rule for rule in host.iptables.rules("filter", chain, version) if rule.startswith("-A ")]
        assert rules[0].endswith(f"-j {ours}"), rules


@pytest.mark.parametrize("version", [4, 6])
def test_the_port_is_closed_to_everybody_else(host: Any, version: int) -> None:
    rules = host.iptables.rules("filter", "DRAFTHOUSE-INPUT", version)
    dropped = [rule for rule in rules if rule.endswith("-j DROP") and str(API_PORT) in rule]
    # The last word on it is about nobody by name.
    assert dropped
    assert " -s " not in dropped[-1]


def test_the_rules_come_back_with_the_box(host: Any) -> None:
    for unit in ("drafthouse-firewall-early", "drafthouse-firewall"):
        assert host.service(unit).is_enabled, unit
    program = host.file("/usr/local/sbin/drafthouse-firewall")
    assert (program.user, program.mode & 0o022) == ("root", 0)
