"""The firewall programs of a machine, and the reasons why Drafthouse cannot write rules for them. Pure functions.

Drafthouse writes rules with iptables and ip6tables. It refuses where these are missing or fail, and where Docker writes
its rules with nftables, because ours then do not see published ports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import Problem
from ..docker.dockerd_flags import option


def docker_backend(daemon_json: str, arguments: Sequence[str]) -> str:
    """The program that Docker writes firewall rules with: a flag's, else that of daemon.json, else ``iptables``.

    ``daemon_json`` is the file's text, ``arguments`` dockerd's command line. ``nftables`` exists since Docker 29.0.0
    (https://docs.docker.com/engine/network/firewall-nftables/).
    """
    backend = option(arguments, "--firewall-backend")
    if backend:
        return backend
    try:
        settings = json.loads(daemon_json or "{}")
    except ValueError:
        return "iptables"  # dockerd does not start with an invalid file
    if not isinstance(settings, dict):
        return "iptables"
    return str(settings.get("firewall-backend") or "iptables")


@dataclass(frozen=True)
class FirewallMeans:
    """What a machine has to write firewall rules with."""

    root: bool = True  # this user is root
    missing: tuple[str, ...] = ()  # iptables, ip6tables
    failing: str = ""  # the error of iptables-save; '' if it works
    docker_backend: str = "iptables"  # or nftables
    docker_backend_from: str = ""  # where Docker's backend is set: a file, or a command line
    own_nftables: tuple[str, ...] = ()  # nftables' tables; read only if iptables is missing


def refusals(facts: FirewallMeans) -> list[Problem]:
    """The reasons why Drafthouse cannot write rules for this firewall; [] if it can."""
    problems = []
    if not facts.root:
        found = "the user is not root"
        needed = "root: only root may read and write firewall rules"
        do = "set ansible_become=true, or ansible_user=root"
        problems.append(Problem("root-required", found, needed, do))
    if facts.docker_backend == "nftables":
        found = (
            "Docker writes its rules with nftables: without the DOCKER-USER chain our rules do not see published ports"
        )
        needed = "Docker's iptables backend, its default"
        do = (
            "remove firewall-backend there and restart Docker, or close the port yourself and set firewall_state=absent"
        )
        problems.append(Problem("firewall-backend", found, needed, do, facts.docker_backend_from))
    return problems + _iptables_problems(facts)


def _iptables_problems(facts: FirewallMeans) -> list[Problem]:
    """The problem of iptables that is missing or fails, else []; an error without root means only the missing root."""
    missing = f"no {' and no '.join(facts.missing)}"
    if facts.missing and facts.own_nftables:
        found = f"{missing}, and nftables rules of its own: {', '.join(facts.own_nftables)}"
        needed = "iptables for both IP families: two sets of rules side by side are error-prone"
        do = (
            "close the port in those nftables rules and set firewall_state=absent,"
            " or apt-get install iptables and keep both in mind"
        )
        return [Problem("firewall-backend", found, needed, do)]
    if facts.missing:
        needed = "iptables for both IP families; its nft variant will do"
        return [Problem("iptables-missing", missing, needed, "apt-get install iptables")]
    if facts.failing and facts.root:
        found = f"iptables does not work here: {facts.failing}"
        needed = "iptables-save and ip6tables-save that list the filter table"
        do = "check whether the box is a container without NET_ADMIN, or nft has tables of iptables' own names"
        return [Problem("iptables-missing", found, needed, do)]
    return []
