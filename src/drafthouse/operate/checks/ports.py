"""The checks of ports: free before a run, who listens afterwards, and what another machine finds behind them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...host.port_holder import taken
from ...profiles.gateway_settings import gateway_of
from ..doctor.expected import monitoring_of
from .finding import WARN, Finding, fail, not_here, of_problem, ok

if TYPE_CHECKING:
    from drafthouse.core.first_process import FirstProcess
    from drafthouse.operate.doctor.types import DoctorFacts, Door
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import Run


def free(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """The engine's ports on which somebody listens who is none of ours."""
    host = resolved["site"]["host"]
    findings = []
    for port, listener in facts["box"]["ports"].items():
        if listener and not listener["ours"]:
            findings.append(of_problem(taken(port, listener, host)))
    return findings


def inside(resolved: Run, facts: DoctorFacts) -> Finding:
    """Who listens on the ports of engine and monitoring, and for whom."""
    site, listening = resolved["site"], facts["listening"]
    if strangers := free(resolved, facts):
        found = "; ".join(stranger.found for stranger in strangers)
        return fail(found, "; ".join(stranger.needed for stranger in strangers), strangers[0].do)
    here = listening.get(str(site["port"]), [])
    opened = site.get("allow_cidrs") and not resolved["gateway"]  # the engine is for those that the firewall lets in
    if (wide := _wide(here)) and not opened:
        return fail(
            f"port {site['port']} listens on {', '.join(wide)}",
            "loopback only: drafthouse_allow_cidrs is empty, or a gateway is in front",
            "make with the profile's name, which restarts it",
        )
    monitoring = monitoring_of(resolved)
    for what, port in monitoring["ports"].items():
        if (wide := _wide(listening.get(str(port), []))) and port not in monitoring["open_ports"]:
            return fail(
                f"port {port} ({what}) listens on {', '.join(wide)}",
                "loopback only: drafthouse_monitoring sets no other address",
                "stop that program if it is not ours; run site.yml --tags monitoring",
            )
    found = f"port {site['port']} on {', '.join(here)}" if here else f"nothing listens on port {site['port']}"
    return ok(found, "our own servers on their addresses")


def _wide(addresses: Sequence[str]) -> list[str]:
    return [address for address in addresses if not ipaddress.ip_address(address).is_loopback]


def gateway_mapped(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """A gateway's port that the platform maps to nothing: nobody would ever reach the address it prints."""
    first = facts["box"].get("first_process")
    wished, mapped = gateway_of(resolved["site"]), first["ports"] if first else None
    if wished is None or not mapped or str(wished["port"]) in mapped:
        return None
    return fail(
        f"the gateway's port {wished['port']} is not mapped; the platform maps {', '.join(sorted(mapped, key=int))}",
        "a mapped port: a rented container's ports are fixed",
        "set drafthouse_gateway_port to a free one of them, or use make tunnel instead of the gateway",
    )


# --- from outside -----------------------------------------------------------------------------------


def doors(resolved: Run, addresses: Sequence[str], rented: FirstProcess | None) -> list[Door]:
    """Where another machine shall knock.

    Addresses of a provider are shared: behind a port that it does not map to us stands another one's box. ``rented`` is
    what the box's first process was told (`first_process.facts`); None where the box is nobody's rented one.
    """
    ports = list(resolved["ports"])
    if resolved["gateway"]:
        ports.append(resolved["gateway"]["port"])
    ports += monitoring_of(resolved)["ports"].values()
    found: list[Door] = []
    if rented is None and not resolved.get("rented_vm"):
        for address in addresses:
            found += [{"address": address, "port": port, "is": port} for port in ports]
        return found
    address = (rented and rented["address"]) or addresses[0]
    mapped = rented["ports"] if rented else {}
    for port in ports:
        if str(port) in mapped:
            found.append({"address": address, "port": mapped[str(port)], "is": port})
    return found


def outside(resolved: Run, facts: DoctorFacts) -> Finding:
    """What another machine found behind the doors."""
    seen, needed = facts["outside"], "open for drafthouse_allow_cidrs only"
    if problem := seen.get("problem"):
        return of_problem(problem, WARN)
    if not seen["doors"]:
        return not_here(seen["why"])
    wrong, shown = [], []
    first = seen["doors"][0]["address"]
    for door in seen["doors"]:
        wanted = _wanted(resolved, door["is"], door["source"])
        found = _state(door["answers"])
        shown.append(f"{door['port']} {found}")
        # Of several addresses (IPv6, say) the other machine may reach one alone: what is closed there proves nothing.
        if wanted and found != wanted and (door["answers"] or door["address"] == first):
            wrong.append(f"{door['address']} port {door['port']} is {found}, not {wanted}")
    who = f"from {seen['from']} ({seen['doors'][0]['source'] or 'of an unknown address'})"
    if wrong:
        do = "run site.yml --tags host for the firewall, site.yml --tags gateway for the gateway; check that both run"
        return fail(f"{who}: {'; '.join(wrong)}", needed, do)
    return ok(f"{who}: {', '.join(dict.fromkeys(shown))}", needed)


def _state(is_open: bool) -> str:
    return "open" if is_open else "closed"


def _wanted(resolved: Run, port: int, source: str) -> str | None:
    """How a port shall be found by somebody at ``source``; None where both are right."""
    site, gateway, monitoring = resolved["site"], resolved["gateway"], monitoring_of(resolved)
    if not site["manage_host"]:
        return _state(gateway is not None and port == gateway["port"])
    if not _allowed(site, source):
        return _state(False)
    if port in monitoring["ports"].values():
        return _state(port in monitoring["open_ports"])
    if gateway:
        return _state(port == gateway["port"])
    # Beside the served arm's port the other arm's is guarded alike, and used only while arms are measured.
    return _state(True) if port == site["port"] else None


def _allowed(site: Site, source: str) -> bool:
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(text, strict=False) for text in site.get("allow_cidrs") or [])
