"""Checks of TCP ports: free before a run, bound as intended after it, and open or closed from another machine.

The functions are pure. A "door" is an address and port that another machine tries to connect to.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...host.port_holder import port_taken
from ...profiles.gateway_settings import gateway_of
from ..doctor.expected import monitoring_of
from .finding import WARN, Finding, fail, not_here, of_problem, ok

if TYPE_CHECKING:
    from drafthouse.core.first_process import FirstProcess
    from drafthouse.operate.doctor.types import DoctorFacts, Door
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import Run


def free(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """A failure for each of the engine's ports that a foreign program already listens on."""
    host = resolved["site"]["host"]
    findings = []
    for port, listener in facts["box"]["ports"].items():
        if listener and not listener["ours"]:
            findings.append(of_problem(port_taken(port, listener, host)))
    return findings


def inside(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that engine and monitoring listen on loopback, unless the settings open their ports.

    The first failure is reported: a foreign program on a port, the engine's port, a port of the monitoring.
    """
    site = resolved["site"]
    listening = facts["listening"]
    if foreign := free(resolved, facts):
        found = "; ".join(finding.found for finding in foreign)
        return fail(found, "; ".join(finding.needed for finding in foreign), foreign[0].do)
    bound = listening.get(str(site["port"]), [])
    opened = site.get("allow_cidrs") and not resolved["gateway"]  # the firewall then limits access to allow_cidrs
    if (exposed := _not_loopback(bound)) and not opened:
        return fail(
            f"port {site['port']} listens on {', '.join(exposed)}",
            "loopback only: drafthouse_allow_cidrs is empty, or a gateway is in front",
            "make with the profile's name, which restarts it",
        )
    monitoring = monitoring_of(resolved)
    for program, port in monitoring["ports"].items():
        if (exposed := _not_loopback(listening.get(str(port), []))) and port not in monitoring["open_ports"]:
            return fail(
                f"port {port} ({program}) listens on {', '.join(exposed)}",
                "loopback only: drafthouse_monitoring sets no other address",
                "stop that program if it is not ours; run site.yml --tags monitoring",
            )
    found = f"port {site['port']} on {', '.join(bound)}" if bound else f"nothing listens on port {site['port']}"
    return ok(found, "our own servers on their addresses")


def _not_loopback(addresses: Sequence[str]) -> list[str]:
    return [address for address in addresses if not ipaddress.ip_address(address).is_loopback]


def gateway_mapped(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the rental platform maps the gateway's port; no client could reach the gateway otherwise.

    None without a gateway, and on a box whose first process names no mapped ports: it is no rented container.
    """
    first_process = facts["box"].get("first_process")
    gateway = gateway_of(resolved["site"])
    mapped = first_process["ports"] if first_process else None
    if gateway is None or not mapped or str(gateway["port"]) in mapped:
        return None
    return fail(
        f"the gateway's port {gateway['port']} is not mapped; the platform maps {', '.join(sorted(mapped, key=int))}",
        "a mapped port: a rented container's ports are fixed",
        "set drafthouse_gateway_port to a free one of them, or use make tunnel instead of the gateway",
    )


# --- from outside -----------------------------------------------------------------------------------


def doors(resolved: Run, addresses: Sequence[str], rented: FirstProcess | None) -> list[Door]:
    """The doors of the ports of engine, gateway and monitoring.

    On a box of one's own: each port at each of ``addresses``. On a rented box: the mapped ports only, as a provider
    shares one address among boxes, and a port that it does not map to this box belongs to another customer.

    ``rented`` holds address and port mapping of a rented container (`first_process.facts`); None for another box. A
    rented VM has no such facts, and so no doors.
    """
    ports = list(resolved["ports"])
    if resolved["gateway"]:
        ports.append(resolved["gateway"]["port"])
    ports += monitoring_of(resolved)["ports"].values()
    listed: list[Door] = []
    if rented is None and not resolved.get("rented_vm"):
        for address in addresses:
            listed += [{"address": address, "port": port, "is": port} for port in ports]
        return listed
    address = (rented and rented["address"]) or addresses[0]
    mapped_ports = rented["ports"] if rented else {}  # port in the container, as text, to public port
    for port in ports:
        if str(port) in mapped_ports:
            listed.append({"address": address, "port": mapped_ports[str(port)], "is": port})
    return listed


def outside(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that each door is open or closed from another machine as the settings want it.

    A problem of the attempt itself is only a warning: it says nothing about the ports.
    """
    attempt = facts["outside"]
    needed = "open for drafthouse_allow_cidrs only"
    if problem := attempt.get("problem"):
        return of_problem(problem, WARN)
    if not attempt["doors"]:
        return not_here(attempt["why"])
    mistakes = []
    results = []
    first_address = attempt["doors"][0]["address"]
    for door in attempt["doors"]:
        wanted = _wanted_state(resolved, door["is"], door["source"])
        state = _door_state(door["answers"])
        results.append(f"{door['port']} {state}")
        # The other machine may have no route to a second address (IPv6): a closed door there proves nothing.
        if wanted and state != wanted and (door["answers"] or door["address"] == first_address):
            mistakes.append(f"{door['address']} port {door['port']} is {state}, not {wanted}")
    client = f"from {attempt['from']} ({attempt['doors'][0]['source'] or 'of an unknown address'})"
    if mistakes:
        do = "run site.yml --tags host for the firewall, site.yml --tags gateway for the gateway; check that both run"
        return fail(f"{client}: {'; '.join(mistakes)}", needed, do)
    return ok(f"{client}: {', '.join(dict.fromkeys(results))}", needed)


def _door_state(is_open: bool) -> str:
    return "open" if is_open else "closed"


def _wanted_state(resolved: Run, port: int, source: str) -> str | None:
    """The required state of a port ("open" or "closed") for a client at ``source``; None where either is right.

    1. Drafthouse does not manage the host, so has no firewall there: only the gateway's port is open.
    2. The client is not in drafthouse_allow_cidrs: closed.
    3. A port of the monitoring: open if the settings open it.
    4. With a gateway: only its port is open.
    5. Without one: the site's port is open, and of any other port either is right.
    """
    site = resolved["site"]
    gateway = resolved["gateway"]
    monitoring = monitoring_of(resolved)
    if not site["manage_host"]:
        return _door_state(gateway is not None and port == gateway["port"])
    if not _is_allowed(site, source):
        return _door_state(False)
    if port in monitoring["ports"].values():
        return _door_state(port in monitoring["open_ports"])
    if gateway:
        return _door_state(port == gateway["port"])
    # The other arm's port has the same firewall rules, and a server listens there only during a measurement.
    return _door_state(True) if port == site["port"] else None


def _is_allowed(site: Site, source: str) -> bool:
    """True if the client's address is in drafthouse_allow_cidrs; False for an unknown address ('')."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(text, strict=False) for text in site.get("allow_cidrs") or [])
