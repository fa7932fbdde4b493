"""One model over several hosts: what an inventory says of it, which hosts belong together, and each one's place. Pure.

The first host of a replica is its head, which has the API; the others follow whatever it serves.
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
from ..core.versions import number
from ..engines.base import HostPlace
from ..engines.registry import engine_of

if TYPE_CHECKING:
    from drafthouse.core.schema import Findings, Shape
    from drafthouse.engines.entry_types import CatalogEngine
    from drafthouse.profiles.profile_types import ExperimentWishes, Site, Span
    from drafthouse.profiles.sizes import Sizes

#: The number is another one where what the hosts say to each other is.
PROGRAM = "together-1.py"
#: The first of three ports of the head's private address: our own watch, and the two that the ranks meet at.
PORT = 29500
#: How many ports an executor has from there on: on every host, with those of its workers.
_PORTS = {"mp": 3, "ray": 111}
#: What the kernel gives a program that asks for any port (net.ipv4.ip_local_port_range): engines' workers do.
_ANY_PORT = "32768:60999"
#: The engine itself starts its workers.
EXECUTOR = "mp"
_CLUSTER = Form(r"(?!-)[A-Za-z0-9._-]+:\d{1,5}", "a Ray cluster's head, such as 10.77.0.1:6379")

SETTINGS: dict[str, Shape] = {
    "hosts_per_replica": Value(int, low=1, high=64),
    # A name for the hosts that belong together; without it those that follow each other in the inventory do.
    "replica": Value(str, form=NAME),
    # Where the hosts of a replica reach each other, and nobody else reaches them.
    "private_subnet": Value(str),
    "replica_port": Value(int, low=1024, high=65536 - _PORTS["ray"]),
    # What starts the engine's workers: itself, or Ray.
    "executor": Value(str, choices=tuple(_PORTS)),
    # A Ray cluster of these hosts that somebody else keeps.
    "ray_address": Value(str, form=_CLUSTER),
    # A host's place, which the run finds out (`drafthouse.core.replica`).
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
    """A host of the play: the name of its replica ('' where the inventory gives none)."""

    name: str
    replica: str = ""


def hosts_of(site: Site) -> int:
    """Return over how many hosts a replica of the site is split."""
    return int(site.get("hosts_per_replica") or 1)


def executor_of(site: Site) -> str:
    """What starts the engine's workers on several hosts."""
    return site.get("executor") or EXECUTOR


def _first_port(site: Site) -> int:
    return int(site.get("replica_port") or PORT)


def group_ports(site: Site) -> list[str]:
    """The ranges of TCP ports, as FIRST:LAST, at which the hosts of a replica listen for each other."""
    if hosts_of(site) == 1:
        return []
    first = _first_port(site)
    return [f"{first}:{first + _PORTS[executor_of(site)] - 1}", _ANY_PORT]


def subnet_of(site: Site) -> ipaddress.IPv4Network | None:
    """The private subnet; None where the site names none, or what is no IPv4 network."""
    try:
        return ipaddress.IPv4Network(str(site["private_subnet"]))
    except (KeyError, ValueError):
        return None


def site_problems(site: Site) -> list[Problem]:
    """What is wrong with what a site says of several hosts."""
    if executor_of(site) != "ray" and "ray_address" in site:
        found, needed = f"a Ray cluster with the executor {executor_of(site)}", "Ray as the executor"
        return [Problem("invalid-setting", found, needed, "set drafthouse_executor: ray", "site.ray_address")]
    if hosts_of(site) == 1:
        if executor_of(site) != "ray":
            return []
        found, do = "Ray for a model on one host", "remove it, or set drafthouse_hosts_per_replica"
        return [Problem("invalid-setting", found, "several hosts per replica", do, "site.executor")]
    if "fleet" in site:
        found, do = "drafthouse_fleet as well", "use an inventory for each: replicas behind a front have one host each"
        return [Problem("invalid-setting", found, "one of the two", do, "site.hosts_per_replica")]
    if "private_subnet" not in site:
        found, do = "several hosts per replica, but no private subnet", "set drafthouse_private_subnet: 10.77.0.0/24"
    elif subnet_of(site) is None:
        found, do = f"'{site['private_subnet']}'", "write it like 10.77.0.0/24"
    else:
        return []
    needed = "the IPv4 network that connects the hosts of a replica: their traffic on it is unauthenticated"
    return [Problem("invalid-setting", found, needed, do, "site.private_subnet")]


def check(
    findings: Findings, site: Site, sizes: Sizes, engine: CatalogEngine, version: str, experiment: ExperimentWishes
) -> None:
    """Add to the findings why one model cannot be served and measured over the site's hosts as the profile says."""
    hosts = sizes.hosts
    if hosts == 1:
        return
    since, name = engine_of(engine["id"]).spans_hosts_since, engine["name"]
    needed = f"an engine that serves one model over {hosts} hosts"
    if not since:
        do = "choose a profile of vLLM, or leave drafthouse_hosts_per_replica out: each host then serves by itself"
        found = f"{name}, which is not known to do this"
        findings.add("several-hosts-unsupported", "engine", found, needed, do)
    elif number(version) < number(since):
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
    spread = sizes.copies if sizes.copies > 1 else sizes.devices
    if spread % hosts or sizes.used // hosts > sizes.hardware["devices"]:
        found = f"{count(sizes.devices, 'device')} for each of {count(sizes.copies, 'model')}, over {hosts} hosts"
        needed = f"the same number on every host, at most its {sizes.hardware['devices']}"
        do = f"correct it, serve.{engine.get('copies_option')}, or drafthouse_hosts_per_replica"
        findings.add("several-hosts-uneven", f"serve.{engine.get('devices_option')}", found, needed, do)


def _check_executor(findings: Findings, site: Site, sizes: Sizes, engine: CatalogEngine, version: str) -> None:
    """Add to the findings why the site's executor cannot start the engine's workers."""
    word, do = executor_of(site), "leave drafthouse_executor out"
    executor = engine_of(engine["id"]).executors.get(word)
    if executor is None:
        found, needed = f"{word}, for {engine['name']}", "an executor of this engine"
        findings.add("several-hosts-unsupported", "site.executor", found, needed, do)
    elif number(version) < number(executor.since):
        found = f"{engine['name']} {version} with the executor {word}"
        needed = f"{executor.since} or newer, which has been run with {', '.join(executor.packages)}"
        findings.add("several-hosts-unsupported", "engine_version", found, needed, do)
    elif "engine_program" in site:
        found = f"{site['engine_program']}, the site's own, with the executor {word}"
        needed = "an environment made by Drafthouse, which has both"
        findings.add("several-hosts-unsupported", "site.engine_program", found, needed, do)
    if sizes.copies > 1:
        found, needed = f"{sizes.copies} copies with the executor {word}", "one model, split over all hosts"
        do = f"{do}: each host then serves its own copies"
        findings.add("several-hosts-unsupported", f"serve.{engine.get('copies_option')}", found, needed, do)


def place_of(site: Site, devices: int, copies: int) -> HostPlace | None:
    """The host's place; None where it serves by itself, or nobody has looked at the hosts yet.

    ``devices`` of each of the ``copies``, which are whole models over all hosts.
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
    """Where the program lies on a host that keeps a replica's hosts together (`serving/together.py`)."""
    return f"{site['home']}/{PROGRAM}"


def _words(site: Site, span: Span, part: str) -> list[str]:
    own = ["--address", span["addresses"][span["rank"]], "--port", str(_first_port(site))]
    return [f"{site['home']}/venv/bin/python", program(site), part, *own]


def lead_command(site: Site) -> list[str]:
    """The words that a head's command stands behind; the script's own path and ``--`` come between.

    They are the same in both arms, which differ in speculation alone.
    """
    span = site["span"]
    return [*_words(site, span, "lead"), "--members", ",".join(span["addresses"])]


def follow_script(site: Site, arms: Mapping[str, str]) -> str:
    """The script by which a follower serves what its head does.

    ``arms``: what the arms' own scripts hold, by their names: where one is another, the follower starts anew.
    """
    span = site["span"]
    words = [*_words(site, span, "follow"), "--head", span["addresses"][0], "--scripts", f"{site['home']}/serve"]
    hashes = (f"# {arm}: {hashlib.sha256(text.encode()).hexdigest()[:16]}\n" for arm, text in sorted(arms.items()))
    # What supervisord says of a port is for an API, which a follower has not.
    return f"#!/usr/bin/env bash\n{''.join(hashes)}exec {shell_words(words)}\n"


def replicas(members: Sequence[Member], hosts: int) -> dict[str, list[str]]:
    """The hosts of each replica, the head first. Raises DrafthouseError where one has too few or too many.

    Those that the inventory gives no replica go together as they follow each other, by the name of the first.
    """
    found: dict[str, list[str]] = {}
    loose = []
    for member in members:
        if member.replica:
            found.setdefault(member.replica, []).append(member.name)
        else:
            loose.append(member.name)
    for start in range(0, len(loose), hosts):
        found[loose[start]] = loose[start : start + hosts]
    problems = []
    for name, there in found.items():
        if len(there) != hosts:
            needed = f"{hosts} hosts in each, as drafthouse_hosts_per_replica says"
            do = "correct drafthouse_replica or the inventory, and run without --limit, or with all hosts of a replica"
            problems.append(Problem("replica-incomplete", f"replica {name} has {', '.join(there)}", needed, do, name))
    if problems:
        raise DrafthouseError(problems)
    return found


def differences(values: Mapping[str, Mapping[str, str]], replica: str) -> list[Problem]:
    """Each thing in which a host of a replica is not like its head; ``values`` are by host, the head's first."""
    head, *others = values
    found = []
    for host in others:
        # In the head's order, and behind it what only the other has.
        for what in dict.fromkeys([*values[head], *values[host]]):
            value, other = values[head].get(what, ""), values[host].get(what, "")
            if other != value:
                said = f"{what}: {value or 'nothing'} on {head}, {other or 'nothing'} on {host}"
                do = f"make {host} like {head}, or let each serve by itself (drafthouse_hosts_per_replica: 1)"
                found.append(Problem("hosts-differ", said, "the same on all hosts of a replica", do, replica))
    return found


def spans(
    found: Mapping[str, list[str]], addresses: Mapping[str, Mapping[str, str]], infiniband: Mapping[str, list[str]]
) -> dict[str, Span]:
    """Each host's place. ``addresses``: of each host inside the subnet, with their interfaces.

    Raises DrafthouseError for a host that has none, or several.
    """
    wrong = []
    for replica, names in found.items():
        for name in names:
            there = addresses[name]
            if len(there) != 1:
                said = ", ".join(f"{address} ({interface})" for address, interface in there.items()) or "no address"
                do = "give the host one address there, or correct drafthouse_private_subnet"
                needed = "one address of the host inside drafthouse_private_subnet"
                wrong.append(Problem("no-private-address", f"{said} on {name}", needed, do, replica))
    if wrong:
        raise DrafthouseError(wrong)
    places: dict[str, Span] = {}
    for replica, names in found.items():
        reached_at = [next(iter(addresses[name])) for name in names]
        for rank, name in enumerate(names):
            places[name] = {
                "replica": replica,
                "rank": rank,
                "names": names,
                "addresses": reached_at,
                "interface": next(iter(addresses[name].values())),
                "infiniband": infiniband[name],
            }
    return places
