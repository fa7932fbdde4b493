"""What a box filters with, and why its firewall may be none that we can write rules for. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import Problem
from ..docker.dockerd_flags import option


def docker_backend(daemon_json: str, arguments: Sequence[str]) -> str:
    """Which firewall Docker writes its rules with: ``iptables`` unless its file or command line says otherwise.

    ``nftables`` exists since Docker 29.0.0 (https://docs.docker.com/engine/network/firewall-nftables/).
    """
    backend = option(arguments, "--firewall-backend")
    if backend:
        return backend
    try:
        settings = json.loads(daemon_json or "{}")
    except ValueError:
        return "iptables"  # Docker does not start with it: nothing of it is in force
    if not isinstance(settings, dict):
        return "iptables"
    return str(settings.get("firewall-backend") or "iptables")


@dataclass(frozen=True)
class Means:
    """What the box filters with, as it was found."""

    root: bool = True
    missing: tuple[str, ...] = ()  # programs of iptables that are not there
    failing: str = ""  # what iptables-save said when it did not work
    docker_backend: str = "iptables"
    docker_backend_from: str = ""
    own_nftables: tuple[str, ...] = ()  # tables that were not made by iptables


def refusals(means: Means) -> list[Problem]:
    """Why this box's firewall is not one that we can write rules for."""
    problems = []
    if not means.root:
        problems.append(
            Problem(
                "root-required",
                "the user is not root",
                "root: only root may read and write firewall rules",
                "set ansible_become=true, or ansible_user=root",
            )
        )
    if means.docker_backend == "nftables":
        problems.append(
            Problem(
                "firewall-backend",
                "Docker writes its rules with nftables: without the DOCKER-USER chain our rules do not"
                " see published ports",
                "Docker's iptables backend, its default",
                "remove firewall-backend there and restart Docker,"
                " or close the port yourself and set firewall_state=absent",
                means.docker_backend_from,
            )
        )
    if means.missing and means.own_nftables:
        problems.append(
            Problem(
                "firewall-backend",
                f"no {' and no '.join(means.missing)}, and nftables rules of its own: {', '.join(means.own_nftables)}",
                "iptables for both IP families: two sets of rules side by side are error-prone",
                "close the port in those nftables rules and set firewall_state=absent,"
                " or apt-get install iptables and keep both in mind",
            )
        )
    elif means.missing:
        problems.append(
            Problem(
                "iptables-missing",
                f"no {' and no '.join(means.missing)}",
                "iptables for both IP families; its nft variant will do",
                "apt-get install iptables",
            )
        )
    elif means.failing and means.root:
        problems.append(
            Problem(
                "iptables-missing",
                f"iptables does not work here: {means.failing}",
                "iptables-save and ip6tables-save that list the filter table",
                "check whether the box is a container without NET_ADMIN, or nft has tables of iptables' own names",
            )
        )
    return problems
