"""One model over several hosts: check the site's settings, group hosts into replicas, give each host its place.

No function here contacts a host. A replica is the group of hosts that serve one model. Its first host is the head,
which has the API. The others are followers: they serve whichever arm the head serves.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem
from ..core.format import count
from ..core.forms import HOST, NAME
from ..core.schema import Form, List, Map, Value
from ..core.shell import shell_words
from ..core.versions import as_version
from ..engines.base import HostPlace
from ..engines.registry import engine_of

if TYPE_CHECKING:
    from drafthouse.core.schema import Findings, Shape
    from drafthouse.engines.entry_types import CatalogEngine
    from drafthouse.profiles.profile_types import ExperimentWishes, Site, Span
    from drafthouse.profiles.sizes import Sizes

#: The name of `serving/together.py` on a host. Its number rises when the protocol between the hosts changes.
PROGRAM = "together-1.py"
#: The first of three ports on the head's private address: one for `together.py`, two at which the ranks meet.
PORT = 29500
#: How many ports, from the first on, each executor uses. Ray's are open on every host, for Ray's own workers.
_PORTS = {"mp": 3, "ray": 111}
#: The kernel's range for a program that asks for any port (net.ipv4.ip_local_port_range), as engine workers do.
_ANY_PORT = "32768:60999"
#: The default executor (what starts the engine's workers on all hosts): the engine itself, by multiprocessing.
EXECUTOR = "mp"
_CLUSTER = Form(r"(?!-)[A-Za-z0-9._-]+:\d{1,5}", "a Ray cluster's head, such as 10.77.0.1:6379")

SETTINGS: dict[str, Shape] = {
    "hosts_per_replica": Value(int, low=1, high=64),
    # A name that the hosts of a replica share; without it, consecutive hosts of the inventory form a replica.
    "replica": Value(str, form=NAME),
    # The network on which the hosts of a replica reach each other, and no other machine reaches them.
    "private_subnet": Value(str),
    "replica_port": Value(int, low=1024, high=65536 - _PORTS["ray"]),
    # What starts the engine's workers: the engine itself (mp), or Ray.
    "executor": Value(str, choices=tuple(_PORTS)),
    # An existing Ray cluster of these hosts, which Drafthouse neither starts nor stops.
    "ray_address": Value(str, form=_CLUSTER),
    # The host's place; the run determines it (action plugin `drafthouse.core.replica`).
    "span": Map(
        {
            "replica": Value(str, required=True),
            "rank": Value(int, required=True, low=0),
            "names": List(Value(str), required=True),
            "addresses": List(Value(str, form=HOST), required=True),
            "interface": Value(str, required=True),
            "infiniband": List(Value(str), required=True),
        }
    ),
}


@dataclass(frozen=True)
class Member:
    """A host of the play."""

    name: str
    replica: str = ""  # its replica's name; '' if the inventory gives none


def hosts_of(site: Site) -> int:
    """The number of hosts of a replica; 1 by default."""
    return int(site.get("hosts_per_replica") or 1)


def executor_of(site: Site) -> str:
    """The site's executor, `mp` or `ray`."""
    return site.get("executor") or EXECUTOR


def _first_port(site: Site) -> int:
    """The first of the ports at which the hosts of a replica meet."""
    return int(site.get("replica_port") or PORT)


def group_ports(site: Site) -> list[str]:
    """The ranges of TCP ports, FIRST:LAST, at which the hosts of a replica listen for each other; [] for one host."""
    if hosts_of(site) == 1:
        return []
    first = _first_port(site)
    return [f"{first}:{first + _PORTS[executor_of(site)] - 1}", _ANY_PORT]


def subnet_of(site: Site) -> ipaddress.IPv4Network | None:
    """The private subnet; None if the site names none, or names something else than an IPv4 network."""
    try:
        return ipaddress.IPv4Network(str(site["private_subnet"]))
    except (KeyError, ValueError):
        return None


def site_problems(site: Site) -> list[Problem]:
    """The first problem of a site's settings for several hosts, as far as it needs no profile; [] for none."""
    if executor_of(site) != "ray" and "ray_address" in site:
        found = f"a Ray cluster with the executor {executor_of(site)}"
        do = "set drafthouse_executor: ray"
        return [Problem("invalid-setting", found, "Ray as the executor", do, "site.ray_address")]
    if hosts_of(site) == 1:
        if executor_of(site) != "ray":
            return []
        found = "Ray for a model on one host"
        do = "remove it, or set drafthouse_hosts_per_replica"
        return [Problem("invalid-setting", found, "several hosts per replica", do, "site.executor")]
    if "fleet" in site:
        found = "drafthouse_fleet as well"
        do = "use an inventory for each: replicas behind a front have one host each"
        return [Problem("invalid-setting", found, "one of the two", do, "site.hosts_per_replica")]
    if "private_subnet" not in site:
        found = "several hosts per replica, but no private subnet"
        do = "set drafthouse_private_subnet: 10.77.0.0/24"
    elif subnet_of(site) is None:
        found = f"'{site['private_subnet']}'"
        do = "write it like 10.77.0.0/24"
    else:
        return []
    needed = "the IPv4 network that connects the hosts of a replica: their traffic on it is unauthenticated"
    return [Problem("invalid-setting", found, needed, do, "site.private_subnet")]


def check(
    findings: Findings,
    *,
    site: Site,
    sizes: Sizes,
    engine: CatalogEngine,
    version: str,
    experiment: ExperimentWishes,
) -> None:
    """Add to ``findings`` why the profile's model cannot be served and measured over the site's hosts.

    ``version``: the engine's. Nothing is added for one host.
    """
    hosts = sizes.hosts
    if hosts == 1:
        return
    since = engine_of(engine["id"]).spans_hosts_since
    name = engine["name"]
    needed = f"an engine that serves one model over {hosts} hosts"
    if not since:
        do = "choose a profile of vLLM, or leave drafthouse_hosts_per_replica out: each host then serves by itself"
        found = f"{name}, which is not known to do this"
        findings.add("several-hosts-unsupported", "engine", found, needed, do)
    elif as_version(version) < as_version(since):
        do = f"choose {since} or newer"
        findings.add("several-hosts-unsupported", "engine_version", f"{name} {version}", needed, do)
    elif site["runtime"] != "process":
        needed = "engines that run as processes on the hosts"
        do = "set drafthouse_runtime: process"
        findings.add("several-hosts-unsupported", "runtimes", "the docker runtime", needed, do)
    if since and executor_of(site) != EXECUTOR:
        _check_executor(findings, site, sizes, engine, version)
    if experiment.get("schedule") == "interleaved":
        needed = "arms in turn: a host can follow only one server"
        findings.add("conflicting-keys", "experiment.schedule", "interleaved, over several hosts", needed, "remove it")
    # Several copies are shared out to the hosts as whole models; a single copy is split over them by its devices.
    divided = sizes.copies if sizes.copies > 1 else sizes.devices
    if divided % hosts or sizes.used // hosts > sizes.hardware["devices"]:
        found = f"{count(sizes.devices, 'device')} for each of {count(sizes.copies, 'model')}, over {hosts} hosts"
        needed = f"the same number on every host, at most its {sizes.hardware['devices']}"
        do = f"correct it, serve.{engine.get('copies_option')}, or drafthouse_hosts_per_replica"
        findings.add("several-hosts-uneven", f"serve.{engine.get('devices_option')}", found, needed, do)


def _check_executor(findings: Findings, site: Site, sizes: Sizes, engine: CatalogEngine, version: str) -> None:
    """Add to ``findings`` why the site's executor cannot start the engine's workers."""
    name = executor_of(site)
    do = "leave drafthouse_executor out"
    executor = engine_of(engine["id"]).executors.get(name)
    if executor is None:
        found = f"{name}, for {engine['name']}"
        findings.add("several-hosts-unsupported", "site.executor", found, "an executor of this engine", do)
    elif as_version(version) < as_version(executor.since):
        found = f"{engine['name']} {version} with the executor {name}"
        needed = f"{executor.since} or newer, which has been run with {', '.join(executor.packages)}"
        findings.add("several-hosts-unsupported", "engine_version", found, needed, do)
    elif "engine_program" in site:
        found = f"{site['engine_program']}, the site's own, with the executor {name}"
        needed = "an environment made by Drafthouse, which has both"
        findings.add("several-hosts-unsupported", "site.engine_program", found, needed, do)
    if sizes.copies > 1:
        found = f"{sizes.copies} copies with the executor {name}"
        needed = "one model, split over all hosts"
        do = f"{do}: each host then serves its own copies"
        findings.add("several-hosts-unsupported", f"serve.{engine.get('copies_option')}", found, needed, do)


def place_of(site: Site, devices: int, copies: int) -> HostPlace | None:
    """The host's place in its replica; None if it serves alone, or before the run has looked at the hosts.

    ``copies``: whole models over all hosts together; ``devices``: the devices of each copy.
    """
    span = site.get("span")
    if span is None:
        return None
    port = _first_port(site)
    return HostPlace(
        rank=span["rank"],
        addresses=tuple(span["addresses"]),
        interface=span["interface"],
        infiniband=tuple(span["infiniband"]),
        ports=(port + 1, port + 2),
        copies=copies,
        devices=devices * copies // len(span["addresses"]),
        executor=executor_of(site),
        cluster=site.get("ray_address", ""),
        token_file=f"{site['home']}/secrets/ray_token",
    )


def program(site: Site) -> str:
    """The path on a host of `serving/together.py`, which makes followers serve what their head serves."""
    return f"{site['home']}/{PROGRAM}"


def _command_of(site: Site, span: Span, verb: str) -> list[str]:
    """The beginning of a command of `together.py` on a host; ``verb`` is lead or follow."""
    options = ["--address", span["addresses"][span["rank"]], "--port", str(_first_port(site))]
    return [f"{site['home']}/venv/bin/python", program(site), verb, *options]


def lead_command(site: Site) -> list[str]:
    """The command in front of a head's engine command; serve.sh puts its own path and ``--`` between them.

    Both arms have the same command, because it names only the hosts.
    """
    span = site["span"]
    return [*_command_of(site, span, "lead"), "--members", ",".join(span["addresses"])]


def follow_script(site: Site, arms: Mapping[str, str]) -> str:
    """The script of a follower, which serves whichever arm its head serves.

    ``arms``: the text of each arm's serve.sh. The script holds their hashes, so the follower restarts if one changes.
    """
    span = site["span"]
    words = [*_command_of(site, span, "follow"), "--head", span["addresses"][0], "--scripts", f"{site['home']}/serve"]
    hashes = (f"# {arm}: {hashlib.sha256(text.encode()).hexdigest()[:16]}\n" for arm, text in sorted(arms.items()))
    # Unlike serve.sh it ignores its arguments, such as the API's port: a follower has no API.
    return f"#!/usr/bin/env bash\n{''.join(hashes)}exec {shell_words(words)}\n"


def replicas(members: Sequence[Member], hosts: int) -> dict[str, list[str]]:
    """The hosts of each replica by its name, the head first; each must have ``hosts`` hosts.

    Hosts without a replica's name are grouped in the inventory's order; the group is named after its first host. Raises
    DrafthouseError for a replica with fewer or more hosts.
    """
    hosts_by_replica: dict[str, list[str]] = {}
    unnamed = []
    for member in members:
        if member.replica:
            hosts_by_replica.setdefault(member.replica, []).append(member.name)
        else:
            unnamed.append(member.name)
    for start in range(0, len(unnamed), hosts):
        hosts_by_replica[unnamed[start]] = unnamed[start : start + hosts]
    problems = []
    for name, names in hosts_by_replica.items():
        if len(names) != hosts:
            needed = f"{hosts} hosts in each, as drafthouse_hosts_per_replica says"
            do = "correct drafthouse_replica or the inventory, and run without --limit, or with all hosts of a replica"
            problems.append(Problem("replica-incomplete", f"replica {name} has {', '.join(names)}", needed, do, name))
    if problems:
        raise DrafthouseError(problems)
    return hosts_by_replica


def differences(values: Mapping[str, Mapping[str, str]], replica: str) -> list[Problem]:
    """A problem for each value in which a host differs from its head.

    ``values``: by host, the head first, then by the value's name. A missing value counts as ''.
    """
    head, *followers = values
    problems = []
    for host in followers:
        # The head's names in their order, then the names that only the other host has.
        for name in dict.fromkeys([*values[head], *values[host]]):
            head_value = values[head].get(name, "")
            follower_value = values[host].get(name, "")
            if follower_value != head_value:
                difference = f"{name}: {head_value or 'nothing'} on {head}, {follower_value or 'nothing'} on {host}"
                do = f"make {host} like {head}, or let each serve by itself (drafthouse_hosts_per_replica: 1)"
                problems.append(Problem("hosts-differ", difference, "the same on all hosts of a replica", do, replica))
    return problems


def spans(
    members: Mapping[str, list[str]], addresses: Mapping[str, Mapping[str, str]], infiniband: Mapping[str, list[str]]
) -> dict[str, Span]:
    """Each host's place by its name.

    ``members``: what `replicas` returns. ``addresses``: by host, the interface of each of its addresses in the subnet.
    ``infiniband``: by host, its adapters. Raises DrafthouseError for a host without exactly one such address.
    """
    problems = []
    for replica, names in members.items():
        for name in names:
            in_subnet = addresses[name]
            if len(in_subnet) != 1:
                text = ", ".join(f"{address} ({interface})" for address, interface in in_subnet.items()) or "no address"
                do = "give the host one address there, or correct drafthouse_private_subnet"
                needed = "one address of the host inside drafthouse_private_subnet"
                problems.append(Problem("no-private-address", f"{text} on {name}", needed, do, replica))
    if problems:
        raise DrafthouseError(problems)
    places: dict[str, Span] = {}
    for replica, names in members.items():
        addresses_by_rank = [next(iter(addresses[name])) for name in names]
        for rank, name in enumerate(names):
            places[name] = {
                "replica": replica,
                "rank": rank,
                "names": names,
                "addresses": addresses_by_rank,
                "interface": next(iter(addresses[name].values())),
                "infiniband": infiniband[name],
            }
    return places
