"""The doctor's look at the box itself: disk, clock, firewall, and its ports from inside and outside. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...host.firewall import rules as firewall
from ...profiles.memory_fit import GB
from .check import WARN, Check, fail, not_here, of_problem, ok, warn
from .deadline import deadline_checks

if TYPE_CHECKING:
    from ...core.first_process import FirstProcess
    from .types import ClockFacts, DoctorFacts, Door, FamilyFacts, FirewallFacts, Space, Wants


# Free space: an engine writes logs, caches and results all the time. Below the first it fails soon.
DISK_FAILS, DISK_WARNS = 1 * GB, 5 * GB
# Beyond the first logs do not fit together; beyond the second certificates and tokens are refused.
CLOCK_WARNS_S, CLOCK_FAILS_S = 5.0, 300.0
_RUN = "make with the profile's name"
_CLOSED, _OPEN = "closed", "open"


def box_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return the checks of what belongs to no engine."""
    return [
        _disk(facts["disk"]),
        _clock(facts["clock"]),
        *deadline_checks(facts.get("deadline")),
        _firewall(wants, facts["firewall"]),
        *_ports(wants, facts),
    ]


def _disk(places: Mapping[str, Space]) -> Check:
    name, needed = "disk", f"{DISK_WARNS / GB:.0f} GB free for logs, caches and results"
    shown = ", ".join(f"{place['free'] / GB:.1f} GB free at {path}" for path, place in sorted(places.items()))
    free = min(place["free"] for place in places.values())
    inodes = min(place["inodes"] for place in places.values())
    do = "free some space: make prune lists weights that no profile uses, docker image prune what no container needs"
    if free < DISK_FAILS or inodes <= 0:
        return fail(name, shown if inodes > 0 else f"{shown}; no inode is left", needed, do)
    return warn(name, shown, needed, do) if free < DISK_WARNS else ok(name, shown, needed)


def _clock(clock: ClockFacts) -> Check:
    name, needed = "clock", f"within {CLOCK_WARNS_S:.0f} s of this machine's"
    do = "switch time synchronisation on (timedatectl set-ntp true), or mend the slower of the two clocks"
    if clock["controller"] is None:
        if clock["synchronised"] is None:
            return not_here(name, "no other clock to compare with")
        if clock["synchronised"]:
            return ok(name, "synchronised")
        return warn(name, "not synchronised, says systemd", "a clock that is synchronised", do)
    before, after = clock["controller"]
    # The box looked at its clock at some moment between the two.
    off = max(0.0, before - clock["time"], clock["time"] - after)
    ahead = "behind" if clock["time"] < before else "ahead"
    if off > CLOCK_WARNS_S:
        say = fail if off > CLOCK_FAILS_S else warn
        return say(name, f"{off:,.0f} s {ahead} of this machine's", needed, do)
    return ok(name, "as this machine's", needed)


# --- the firewall -----------------------------------------------------------------------------------


def _firewall(wants: Wants, facts: FirewallFacts) -> Check:
    name, needed = "firewall", "our chains as they were confirmed, first in INPUT and DOCKER-USER, both IP families"
    if facts["not_here"]:
        return not_here(name, facts["not_here"])
    found = _faults(wants, facts)
    if found:
        return fail(name, "; ".join(found), needed, "run playbooks/host.yml, which puts them back and proves them")
    rules = sum(len(family["kept"]) for family in facts["families"].values())
    return ok(name, f"{rules} rules in force, as confirmed", needed)


def _faults(wants: Wants, facts: FirewallFacts) -> list[str]:
    """Return what differs from the rules that the role confirmed."""
    faults = []
    guarded = {wants["site"]["port"], *([wants["gateway"]["port"]] if wants["gateway"] else [])}
    guarded |= set(wants["monitoring"]["open_ports"])
    for family, one in sorted(facts["families"].items()):
        if one["error"]:
            faults.append(f"IPv{family}: {one['error']}")
        elif not one["kept"]:
            faults.append(f"IPv{family}: no rules of ours were ever confirmed")
        elif not firewall.in_place(firewall.ours(one["saved"]), one["kept"]):
            faults.append(f"IPv{family}: {_difference(one)}")
        else:
            open_ports = sorted(guarded - _guarded(one["kept"]))
            faults += [f"IPv{family}: port {port} is not guarded" for port in open_ports]
    if facts["pending"]:
        faults.append("rules are on trial, and nobody confirmed them yet")
    if not facts["enabled"]:
        faults.append("the units that put them back at the next boot are not enabled")
    return faults


def _difference(one: FamilyFacts) -> str:
    ours = firewall.ours(one["saved"])
    present = [line for lines in ours.rules.values() for line in lines]
    missing = len([line for line in one["kept"] if line not in present])
    more = len([line for line in present if line not in one["kept"]])
    if missing or more:
        return f"{missing} of {len(one['kept'])} rules missing, {more} that are not ours in our chains"
    jumps = ", ".join(f"{chain} from place {place} of {parent}" for parent, chain, place in ours.jumps)
    return f"our chains are not asked first ({jumps or 'nothing jumps to them'})"


def _guarded(rules: Sequence[str]) -> set[int]:
    """Return the ports for which our INPUT chain ends in DROP."""
    found = set()
    for rule in rules:
        words = rule.split()
        if words[:2] == ["-A", firewall.INPUT] and words[-1] == "DROP" and "--dport" in words:
            found.add(int(words[words.index("--dport") + 1]))
    return found


# --- ports ------------------------------------------------------------------------------------------


def _ports(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return who listens on the engine's ports, and for whom."""
    name, site = "ports from inside", wants["site"]
    taken = [
        f"port {port} is taken by {'pid ' + str(who['pid']) + ': ' if who['pid'] else ''}{who['command']}"
        for port, who in facts["box"]["ports"].items()
        if who and not who["ours"]
    ]
    if taken:
        do = "end that program, or set another one: -e drafthouse_port=8100"
        return [fail(name, "; ".join(taken), f"{wants['ports']} free, or our own servers", do)]
    listening = facts["listening"].get(str(site["port"]), [])
    wide = [address for address in listening if not ipaddress.ip_address(address).is_loopback]
    if wide and not opened(wants):
        found = f"port {site['port']} listens on {', '.join(wide)}"
        needed = "loopback alone: nobody stands in drafthouse_allow_cidrs, or a gateway is in front"
        return [fail(name, found, needed, f"{_RUN}, which starts it anew")]
    for what, port in wants["monitoring"]["ports"].items():
        wide = [text for text in facts["listening"].get(str(port), []) if not ipaddress.ip_address(text).is_loopback]
        if wide and port not in wants["monitoring"]["open_ports"]:
            found = f"port {port} ({what}) listens on {', '.join(wide)}"
            do = "end that program where it is none of ours; run playbooks/monitoring.yml"
            return [fail(name, found, "loopback alone: drafthouse_monitoring says no other address", do)]
    said = f"port {site['port']} on {', '.join(listening)}" if listening else f"nobody listens on {site['port']}"
    return [ok(name, said, "our own servers, where they shall listen")]


def opened(wants: Wants) -> bool:
    """Tell whether the engine itself is for those that the firewall lets in."""
    return bool(wants["site"].get("allow_cidrs") and not wants["gateway"])


def doors(wants: Wants, addresses: Sequence[str], rented: FirstProcess | None) -> list[Door]:
    """Return where another machine shall knock.

    Addresses of a provider are shared: behind a port that it does not map to us stands another one's box. ``rented`` is
    what the box's first process was told (`first_process.facts`); None where the box is nobody's rented one.
    """
    gateway, mapped = wants["gateway"], rented["ports"] if rented else {}
    ports = [*wants["ports"], *([gateway["port"]] if gateway else []), *wants["monitoring"]["ports"].values()]
    if rented is not None or wants["rented_vm"]:
        address = (rented and rented["address"]) or addresses[0]
        return [{"address": address, "port": mapped[str(port)], "is": port} for port in ports if str(port) in mapped]
    return [{"address": address, "port": port, "is": port} for address in addresses for port in ports]


def outside_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return what another machine found behind the doors."""
    name, outside = "ports from outside", facts["outside"]
    if problem := outside.get("problem"):
        return [of_problem(name, problem, WARN)]
    if not outside["doors"]:
        return [not_here(name, outside["why"])]
    wrong, shown = [], []
    first = outside["doors"][0]["address"]
    for door in outside["doors"]:
        wanted = _wanted(wants, door["is"], door["source"])
        found = _OPEN if door["answers"] else _CLOSED
        shown.append(f"{door['port']} {found}")
        # Of several addresses (IPv6, say) the other machine may reach one alone: what is closed there proves nothing.
        if wanted and found != wanted and (found == _OPEN or door["address"] == first):
            wrong.append(f"{door['address']} port {door['port']} is {found}, not {wanted}")
    who = f"from {outside['from']} ({outside['doors'][0]['source'] or 'of an unknown address'})"
    if wrong:
        needed = "open for drafthouse_allow_cidrs alone"
        do = "run playbooks/host.yml for the firewall, playbooks/gateway.yml for the gateway; see that both run"
        return [fail(name, f"{who}: {'; '.join(wrong)}", needed, do)]
    return [ok(name, f"{who}: {', '.join(dict.fromkeys(shown))}", "open for drafthouse_allow_cidrs alone")]


def _wanted(wants: Wants, port: int, source: str) -> str | None:
    """Return how a port shall be found by somebody at ``source``; None where both are right."""
    site, gateway = wants["site"], wants["gateway"]
    if site["box_kind"] == "rental":
        return _OPEN if gateway and port == gateway["port"] else _CLOSED
    if not _allowed(site.get("allow_cidrs") or [], source):
        return _CLOSED
    if port in wants["monitoring"]["ports"].values():
        return _OPEN if port in wants["monitoring"]["open_ports"] else _CLOSED
    if gateway:
        return _OPEN if port == gateway["port"] else _CLOSED
    # Beside the served arm's port the other arm's is guarded alike, and used only while arms are measured.
    return _OPEN if port == site["port"] else None


def _allowed(networks: Sequence[str], source: str) -> bool:
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return False
    found = (ipaddress.ip_network(text, strict=False) for text in networks)
    return any(address in network for network in found if network.version == address.version)
