"""Make the firewall rules for IPv4 and IPv6, and find our rules in the output of `iptables-save`. Pure functions.

All rules are in two chains. ``INPUT`` jumps to ``DRAFTHOUSE-INPUT``, which guards the ports of the machine's
processes, among them docker-proxy on ``[::]``. Docker's chain ``DOCKER-USER``, if it exists, jumps to
``DRAFTHOUSE-DOCKER``, which guards published ports. Docker rewrites a published port before ``FORWARD``, so rules
match its original destination port (https://docs.docker.com/engine/network/packet-filtering-firewalls/).
Rules are written as iptables-save prints them (tested with 1.8.9 and 1.8.11, nft and legacy).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ...core.errors import DrafthouseError, Problem

FAMILIES = (4, 6)  # IP versions
INPUT, DOCKER = "DRAFTHOUSE-INPUT", "DRAFTHOUSE-DOCKER"  # our chains
OURS = (DOCKER, INPUT)
PARENT_OF = {INPUT: "INPUT", DOCKER: "DOCKER-USER"}  # the chain that jumps to ours
SHORTEST_TRIAL_S, LONGEST_TRIAL_S = 10, 600  # after which unconfirmed rules are reverted
_MAX_CONNECTIONS = 65535  # of one client to one port
_MAX_RATE = 2500  # new connections per second; hashlimit accepts a burst of at most 10,000
_BURST = 4  # a factor: a client may open this many times its connections per second at once

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# An interface name (at most 15 bytes), or a prefix with iptables' wildcard + at its end.
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}|[A-Za-z0-9_.:@-]{1,14}\+")
_RANGE = re.compile(r"\d{1,5}:\d{1,5}")
_JUMP = re.compile(r"-A (\S+) -j (\S+)")


@dataclass(frozen=True)
class Wishes:
    """The wanted access to TCP ports. The machine itself and its containers always have access."""

    ports: tuple[int, ...]
    allow: tuple[Network, ...] = ()  # networks of clients
    docker_interfaces: tuple[str, ...] = ()  # of the machine's containers
    closed: tuple[int, ...] = ()  # those of ``ports`` without clients: the engine's, behind a gateway
    connections: int = 0  # most connections of one client to one port; 0: no limit
    rate: int = 0  # most new connections per second of one client to one port; 0: no limit
    group: tuple[Network, ...] = ()  # the other hosts that serve the same model: they may reach every port
    group_ports: tuple[str, ...] = ()
    """Ranges "first:last" in which the engines of the group listen for each other; only the group may reach them."""


@dataclass(frozen=True)
class Session:
    """The SSH connection of this process, from sshd's variable ``SSH_CONNECTION``."""

    client: str  # IP address
    client_port: int
    server: str  # IP address of this machine
    server_port: int

    @property
    def family(self) -> int:
        """The IP family, 4 or 6."""
        return ipaddress.ip_address(self.client).version


@dataclass(frozen=True)
class Ours:
    """Our part of an IP family's filter table."""

    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines of iptables-save, by our chain
    jumps: Sequence[tuple[str, str, int]] = ()  # (parent chain, our chain, rule number in the parent from 1)
    docker_user: bool = False  # the chain ``DOCKER-USER`` exists


def wishes(
    ports: Sequence[int],
    allow_cidrs: Sequence[str],
    docker_interfaces: Sequence[str],
    ssh_ports: Iterable[int],
    closed_ports: Sequence[int] = (),
    connections: int = 0,
    rate: int = 0,
    group: Sequence[str] = (),
    group_ports: Sequence[str] = (),
) -> Wishes:
    """The validated wishes, in the order and sense of `Wishes`. Raises DrafthouseError with all invalid settings.

    ``ssh_ports`` are the ports that SSH listens on. Filtering one of them is refused. ``group_ports`` count only with a
    group.
    """
    ports = [*ports, *closed_ports]
    problems = _port_problems(ports, set(ssh_ports))
    networks = _networks(allow_cidrs, "firewall_allow_cidrs", problems)
    group_networks = _networks(group, "firewall_group", problems)
    if group:
        problems += _range_problems(group_ports, set(ssh_ports))
    problems += _interface_problems(docker_interfaces)
    problems += _limit_problems("firewall_client_connections", connections, _MAX_CONNECTIONS)
    problems += _limit_problems("firewall_client_rate", rate, _MAX_RATE)
    if problems:
        raise DrafthouseError(problems)
    return Wishes(
        ports=tuple(sorted(set(ports))),
        allow=networks,
        docker_interfaces=tuple(sorted(set(docker_interfaces))),
        closed=tuple(sorted(set(closed_ports))),
        connections=connections,
        rate=rate,
        group=group_networks,
        group_ports=tuple(group_ports) if group_networks else (),
    )


def _port_problems(ports: Sequence[int], ssh_ports: Set[int]) -> list[Problem]:
    """Problems with port numbers: invalid ones, and those that SSH listens on."""
    problems = []
    for port in ports:
        if not 1 <= port <= 65535:
            problems.append(
                Problem("invalid-setting", f"port {port}", "a port from 1 to 65535", "correct it", "firewall_port")
            )
    for port in sorted(ssh_ports & set(ports)):
        found = f"port {port} for the API, on which SSH listens"
        needed = "a port other than SSH's: closing that would lock you out"
        do = "choose another port for the API; if SSH listens elsewhere, set firewall_ssh_port"
        problems.append(Problem("firewall-would-lock-out", found, needed, do, "firewall_port"))
    return problems


def _networks(texts: Iterable[str], where: str, problems: list[Problem]) -> tuple[Network, ...]:
    """The networks in a setting, sorted, so that another order is no change; append to ``problems``."""
    networks = set[Network]()
    for text in texts:
        try:
            networks.add(ipaddress.ip_network(text))
        except ValueError as error:
            problems.append(_not_a_network(text, error, where))
    return tuple(sorted(networks, key=lambda net: (net.version, net.network_address.packed, net.prefixlen)))


def _interface_problems(names: Iterable[str]) -> list[Problem]:
    """Problems with invalid interface names."""
    problems = []
    for name in names:
        if _INTERFACE.fullmatch(name):
            continue
        found = f"'{name}'"
        needed = "the name of an interface: up to 15 letters and digits, with a trailing + for all that start like this"
        do = "use docker0, or a bridge listed by `ip -brief link`"
        problems.append(Problem("invalid-setting", found, needed, do, "firewall_docker_interfaces"))
    return problems


def _limit_problems(setting: str, value: int, maximum: int) -> list[Problem]:
    """The problem of a limit per client that is out of range, else []."""
    if 0 <= value <= maximum:
        return []
    needed = f"a number from 0 (no limit) to {maximum}"
    return [Problem("invalid-setting", f"{value}", needed, "correct it", setting)]


def _range_problems(ranges: Iterable[str], ssh_ports: Set[int]) -> list[Problem]:
    """Problems with port ranges. A range with SSH's port would lock out every host outside the group."""
    problems = []
    for text in ranges:
        first = last = 0
        if _RANGE.fullmatch(text):
            first, last = map(int, text.split(":"))
        if not 1 <= first <= last <= 65535:
            needed = "two ports with a colon between them, such as 32768:60999"
            problems.append(Problem("invalid-setting", f"'{text}'", needed, "correct it", "firewall_group_ports"))
        for port in sorted(port for port in ssh_ports if first <= port <= last):
            found = f"{text}, which includes SSH's port {port}"
            needed = "ports that are not SSH's: closing it would lock you out"
            do = "let SSH listen on another port, or set firewall_group_ports and the engine's own range of ports"
            problems.append(Problem("firewall-would-lock-out", found, needed, do, "firewall_group_ports"))
    return problems


def _not_a_network(text: str, error: ValueError, where: str) -> Problem:
    """The problem that ``text`` is no network, with a suggestion."""
    try:
        meant = f"write {ipaddress.ip_network(text, strict=False)} for the whole network, or one address alone"
    except ValueError:
        meant = "write it like 203.0.113.0/24, 203.0.113.7 or 2001:db8:1::/48; a name is not an address"
    return Problem("invalid-setting", f"'{text}': {error}", "an IPv4 or IPv6 network or address", meant, where)


def trial_problems(seconds: int) -> list[Problem]:
    """Problems with the time (in seconds) after which unconfirmed rules are reverted."""
    if SHORTEST_TRIAL_S <= seconds <= LONGEST_TRIAL_S:
        return []
    found = f"{seconds} seconds"
    needed = f"{SHORTEST_TRIAL_S} to {LONGEST_TRIAL_S}: enough for a new connection, but not too long to wait"
    do = "leave it at 60"
    return [Problem("invalid-setting", found, needed, do, "firewall_confirm_seconds")]


def rules(access: Wishes, family: int) -> list[str]:
    """The rules of one IP family, as iptables-save prints them.

    The order counts, as the first rule that matches decides: published ports, the hosts of the group, the machine's own
    ports, the group's ranges.
    """
    sources = [_source(network) for network in access.allow if network.version == family]
    allowed = dict.fromkeys(access.ports, sources)
    for port in access.closed:
        allowed[port] = []  # nobody from outside
    lines: list[str] = []
    for port in access.ports:
        lines += _docker_rules(access, allowed[port], port)
    lines += [f"-A {INPUT} -s {host} -p tcp -j ACCEPT" for host in access.group if host.version == family]
    for port in access.ports:
        lines += _input_rules(access, allowed[port], port, family)
    for port_range in access.group_ports:
        # Only new connections: the answers to this host's connections may arrive at such a port too.
        syn_only = "--tcp-flags FIN,SYN,RST,ACK SYN"
        lines.append(f"-A {INPUT} ! -i lo -p tcp -m tcp --dport {port_range} {syn_only} -j DROP")
    return lines


def _source(network: Network) -> str:
    """The condition of a rule for clients in a network, with a blank behind it; iptables-save prints none for all."""
    return f"-s {network} " if network.prefixlen else ""


def _docker_rules(access: Wishes, sources: Sequence[str], port: int) -> list[str]:
    """The rules of a published port: clients of ``sources`` and our containers may reach it, nobody else."""
    to_port = f"--ctorigdstport {port} --ctdir ORIGINAL"
    # DNAT matches only packets to a published port, not the containers' requests to that port of other machines.
    published = f"-p tcp -m conntrack --ctstate DNAT {to_port}"
    lines = [f"-A {DOCKER} {source}{published} -j ACCEPT" for source in sources]
    for name in access.docker_interfaces:
        lines.append(f"-A {DOCKER} -i {name} {published} -j ACCEPT")
    lines.append(f"-A {DOCKER} {published} -j DROP")
    # A machine in the same network can route to the container's address and bypass the published port. Docker
    # prevents this from 28.0 on (https://docs.docker.com/engine/release-notes/28/).
    for name in access.docker_interfaces:
        lines.append(f"-A {DOCKER} ! -i {name} -o {name} -p tcp -m conntrack {to_port} -j DROP")
    return lines


def _input_rules(access: Wishes, sources: Sequence[str], port: int, family: int) -> list[str]:
    """The rules of a port of the machine: itself, our containers and, within limits, ``sources`` may reach it."""
    to_port = f"-p tcp -m tcp --dport {port}"
    lines = [f"-A {INPUT} -i {name} {to_port} -j ACCEPT" for name in ("lo", *access.docker_interfaces)]
    if sources:
        lines += _client_rules(access, to_port, port, family)
    lines += [f"-A {INPUT} {source}{to_port} -j ACCEPT" for source in sources]
    return [*lines, f"-A {INPUT} {to_port} -j DROP"]


def _client_rules(access: Wishes, to_port: str, port: int, family: int) -> list[str]:
    """The limits per client: too many connections are rejected, too many new ones per second are delayed.

    A client is an IPv4 address or an IPv6 /64 network, the usual size of one customer's network. Only the first packet
    of a connection is checked. If it is dropped, the client's TCP sends it again a second later.
    """
    new_connection = f"-A {INPUT} {to_port} --tcp-flags FIN,SYN,RST,ACK SYN"
    # For hashlimit a mask of 32 bits is the default, which iptables-save does not print.
    mask, srcmask = (32, "") if family == 4 else (64, "--hashlimit-srcmask 64 ")
    lines = []
    if access.connections:
        limit = f"-m connlimit --connlimit-above {access.connections} --connlimit-mask {mask} --connlimit-saddr"
        lines.append(f"{new_connection} {limit} -j REJECT --reject-with tcp-reset")
    if access.rate:
        limit = f"--hashlimit-above {access.rate}/sec --hashlimit-burst {access.rate * _BURST}"
        # The kernel keeps a hashlimit table's settings while a rule uses its name, so a new rate needs a new name.
        table = f"--hashlimit-mode srcip --hashlimit-name drafthouse-{port}-{access.rate} {srcmask}"
        lines.append(f"{new_connection} -m hashlimit {limit} {table}-j DROP")
    return lines


def own_connection(session: Session | None, family: int) -> list[str]:
    """The rule that keeps the running SSH connection during a trial; [] without one, and for the other IP family."""
    if session is None or session.family != family:
        return []
    source = ipaddress.ip_network(session.client)
    ports = f"--sport {session.client_port} --dport {session.server_port}"
    return [f"-A {INPUT} -s {source} -p tcp -m tcp {ports} -j ACCEPT"]


def restore_text(lines: Sequence[str]) -> str:
    """The input for `iptables-restore --noflush` that replaces the content of our chains by ``lines``."""
    # With --noflush only the chains that are named here are emptied.
    return "".join(f"{line}\n" for line in [f":{DOCKER} - [0:0]", f":{INPUT} - [0:0]", *lines])


def ours(saved: str) -> Ours:
    """Our part of ``saved``, the output of `iptables-save -t filter` of one IP family.

    A jump counts only without a condition: one with a condition would not send all packets to our chain.
    """
    rules_by_chain: dict[str, list[str]] = {}
    jumps: list[tuple[str, str, int]] = []
    rule_counts: dict[str, int] = {}
    docker_user = False
    for line in saved.splitlines():
        if line.startswith(":"):
            chain = line[1:].split()[0]
            docker_user = docker_user or chain == PARENT_OF[DOCKER]
            if chain in OURS:
                rules_by_chain[chain] = []
        elif line.startswith("-A "):
            chain = line.split()[1]
            rule_counts[chain] = rule_counts.get(chain, 0) + 1
            jump = _JUMP.fullmatch(line)
            if chain in OURS:
                rules_by_chain.setdefault(chain, []).append(line)
            elif jump and jump[2] in OURS:
                jumps.append((chain, jump[2], rule_counts[chain]))
    return Ours(rules_by_chain, tuple(jumps), docker_user)


def in_place(present: Ours, wanted: Sequence[str]) -> bool:
    """True if our chains hold exactly the rules ``wanted``, and their parents' first rules jump to them once."""
    after = would_be(present, wanted)
    return present.rules == after.rules and sorted(present.jumps) == sorted(after.jumps)


def shown(present: Ours) -> str:
    """Our jumps and rules as text, for a diff."""
    text = ""
    for parent, chain, rule_number in present.jumps:
        text += f"-A {parent} -j {chain}  # place {rule_number}\n"
    for chain in sorted(present.rules):
        text += "".join(f"{line}\n" for line in present.rules[chain])
    return text


def would_be(present: Ours, wanted: Sequence[str]) -> Ours:
    """Our part of the filter table after the rules ``wanted`` have replaced those in ``present``."""
    jumps = [(PARENT_OF[INPUT], INPUT, 1)]
    if present.docker_user:
        jumps.append((PARENT_OF[DOCKER], DOCKER, 1))
    by_chain: dict[str, list[str]] = {DOCKER: [], INPUT: []}
    for line in wanted:
        _, chain, *_ = line.split()
        by_chain[chain].append(line)
    return Ours(by_chain, tuple(jumps), present.docker_user)


def session(text: str | None) -> Session | None:
    """Parse ``SSH_CONNECTION`` (client, its port, server, its port); None if it is missing or invalid."""
    try:
        client, client_port, server, server_port = (text or "").split()[:4]
        # Behind % is the interface of a link-local address.
        client = client.partition("%")[0]
        connection = Session(client, int(client_port), server.partition("%")[0], int(server_port))
        ipaddress.ip_address(client)
    except ValueError:
        return None
    return connection
