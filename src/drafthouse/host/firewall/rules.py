"""From wishes to the exact rules of both IP families, and from `iptables-save` text to what is ours. Pure.

The rules stand in two chains of our own. ``DRAFTHOUSE-INPUT`` is jumped to from ``INPUT``: it guards what a
process of the box listens on, docker-proxy too, which answers on ``[::]``. ``DRAFTHOUSE-DOCKER`` is jumped to
from ``DOCKER-USER`` where Docker made that chain: a published port is rewritten before ``FORWARD`` sees it, so
it is told by its original destination port (https://docs.docker.com/engine/network/packet-filtering-firewalls/).
The rules are written the way iptables-save prints them (tried with 1.8.9 and 1.8.11, nft and legacy).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ...core.errors import DrafthouseError, Problem

FAMILIES = (4, 6)
INPUT, DOCKER = "DRAFTHOUSE-INPUT", "DRAFTHOUSE-DOCKER"
OURS = (DOCKER, INPUT)
PARENT_OF = {INPUT: "INPUT", DOCKER: "DOCKER-USER"}
SHORTEST_TRIAL_S, LONGEST_TRIAL_S = 10, 600
_MOST_CONNECTIONS = 65535
_MOST_RATE = 2500  # new connections a second; four times as many at once is the most that hashlimit takes
_BURST = 4

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# What the kernel takes for a name (15 bytes), with iptables' own wildcard at its end.
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}|[A-Za-z0-9_.:@-]{1,14}\+")
_RANGE = re.compile(r"\d{1,5}:\d{1,5}")
_JUMP = re.compile(r"-A (\S+) -j (\S+)")


@dataclass(frozen=True)
class Wishes:
    """What shall hold: who may reach the ports (TCP), beside the box itself and its containers.

    ``closed`` are those of the ports that nobody else may reach: the engine's, where a gateway stands in front of it.
    ``connections`` and ``rate`` (new ones a second) are what one client may have at a port; 0: as many as it likes.
    ``group`` are the other hosts that serve the same model: they reach every port. ``group_ports``, as "first:last",
    are where the engines of such hosts listen for each other, and nobody else reaches them.
    """

    ports: tuple[int, ...]
    allow: tuple[Network, ...] = ()
    docker_interfaces: tuple[str, ...] = ()
    closed: tuple[int, ...] = ()
    connections: int = 0
    rate: int = 0
    group: tuple[Network, ...] = ()
    group_ports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Session:
    """The SSH connection that we run in, as sshd tells it in ``SSH_CONNECTION``."""

    client: str
    client_port: int
    server: str
    server_port: int

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.client).version


@dataclass(frozen=True)
class Ours:
    """What is ours in one family's filter table: rules by chain, the chains that jump to us and at which place."""

    rules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    jumps: Sequence[tuple[str, str, int]] = ()  # (from, to, place in its chain, counted from 1)
    docker_user: bool = False


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
    """The wishes, checked; raises DrafthouseError with all that is wrong.

    ``ssh_ports`` are the ports that SSH answers on: a wish to filter one of them is refused.
    """
    ports = [*ports, *closed_ports]
    problems = _port_problems(ports, set(ssh_ports))
    networks = _networks(allow_cidrs, "firewall_allow_cidrs", problems)
    mates = _networks(group, "firewall_group", problems)
    if group:
        problems += _range_problems(group_ports, set(ssh_ports))
    problems += _interface_problems(docker_interfaces)
    problems += _limit_problems("firewall_client_connections", connections, _MOST_CONNECTIONS)
    problems += _limit_problems("firewall_client_rate", rate, _MOST_RATE)
    if problems:
        raise DrafthouseError(problems)
    return Wishes(
        tuple(sorted(set(ports))),
        networks,
        tuple(sorted(set(docker_interfaces))),
        tuple(sorted(set(closed_ports))),
        connections,
        rate,
        mates,
        tuple(group_ports) if mates else (),
    )


def _port_problems(ports: Sequence[int], ssh_ports: Set[int]) -> list[Problem]:
    """The ports that do not exist, and those on which SSH answers."""
    problems = []
    for port in ports:
        if not 1 <= port <= 65535:
            problems.append(
                Problem("invalid-setting", f"port {port}", "a port from 1 to 65535", "correct it", "firewall_port")
            )
    for port in sorted(ssh_ports & set(ports)):
        problems.append(
            Problem(
                "firewall-would-lock-out",
                f"port {port} for the API, on which SSH listens",
                "a port other than SSH's: closing that would lock you out",
                "choose another port for the API; if SSH listens elsewhere, set firewall_ssh_port",
                "firewall_port",
            )
        )
    return problems


def _networks(texts: Iterable[str], where: str, problems: list[Problem]) -> tuple[Network, ...]:
    """The networks that a setting names, in one order, so that a setting in a new order is no change."""
    found = set[Network]()
    for text in texts:
        try:
            found.add(ipaddress.ip_network(text))
        except ValueError as error:
            problems.append(_not_a_network(text, error, where))
    return tuple(sorted(found, key=lambda net: (net.version, net.network_address.packed, net.prefixlen)))


def _interface_problems(names: Iterable[str]) -> list[Problem]:
    """The names that no interface can have."""
    problems = []
    for name in names:
        if _INTERFACE.fullmatch(name):
            continue
        problems.append(
            Problem(
                "invalid-setting",
                f"'{name}'",
                "the name of an interface: up to 15 letters and digits, with a trailing + for all that start like this",
                "use docker0, or a bridge listed by `ip -brief link`",
                "firewall_docker_interfaces",
            )
        )
    return problems


def _limit_problems(setting: str, value: int, most: int) -> list[Problem]:
    if 0 <= value <= most:
        return []
    needed = f"a number from 0 (no limit) to {most}"
    return [Problem("invalid-setting", f"{value}", needed, "correct it", setting)]


def _range_problems(ranges: Iterable[str], ssh_ports: Set[int]) -> list[Problem]:
    """What is wrong with ranges of ports; SSH's port among them would lock out whoever is not of the group."""
    problems = []
    for text in ranges:
        first = last = 0
        if _RANGE.fullmatch(text):
            first, last = map(int, text.split(":"))
        if not 1 <= first <= last <= 65535:
            needed = "two ports with a colon between them, such as 32768:60999"
            problems.append(Problem("invalid-setting", f"'{text}'", needed, "correct it", "firewall_group_ports"))
        for port in sorted(port for port in ssh_ports if first <= port <= last):
            problems.append(
                Problem(
                    "firewall-would-lock-out",
                    f"{text}, which includes SSH's port {port}",
                    "ports that are not SSH's: closing it would lock you out",
                    "let SSH listen on another port, or set firewall_group_ports and the engine's own range of ports",
                    "firewall_group_ports",
                )
            )
    return problems


def _not_a_network(text: str, error: ValueError, where: str) -> Problem:
    """Say what is wrong with ``text``, and what was probably meant."""
    try:
        meant = f"write {ipaddress.ip_network(text, strict=False)} for the whole network, or one address alone"
    except ValueError:
        meant = "write it like 203.0.113.0/24, 203.0.113.7 or 2001:db8:1::/48; a name is not an address"
    return Problem("invalid-setting", f"'{text}': {error}", "an IPv4 or IPv6 network or address", meant, where)


def trial_problems(seconds: int) -> list[Problem]:
    """What is wrong with the time (in seconds) after which unconfirmed rules are taken back."""
    if SHORTEST_TRIAL_S <= seconds <= LONGEST_TRIAL_S:
        return []
    return [
        Problem(
            "invalid-setting",
            f"{seconds} seconds",
            f"{SHORTEST_TRIAL_S} to {LONGEST_TRIAL_S}: enough for a new connection, but not too long to wait",
            "leave it at 60",
            "firewall_confirm_seconds",
        )
    ]


def rules(wished: Wishes, family: int) -> list[str]:
    """The rules of one family, as iptables-save prints them: Docker's path first, then the box's own."""
    sources = [_source(network) for network in wished.allow if network.version == family]
    allowed = dict.fromkeys(wished.ports, sources)
    for port in wished.closed:
        allowed[port] = []
    found: list[str] = []
    for port in wished.ports:
        found += _docker_rules(wished, allowed[port], port)
    found += [f"-A {INPUT} -s {mate} -p tcp -j ACCEPT" for mate in wished.group if mate.version == family]
    for port in wished.ports:
        found += _input_rules(wished, allowed[port], port, family)
    for ports in wished.group_ports:
        # New connections alone: what this host began itself may well come from such a port.
        new = "--tcp-flags FIN,SYN,RST,ACK SYN"
        found.append(f"-A {INPUT} ! -i lo -p tcp -m tcp --dport {ports} {new} -j DROP")
    return found


def _source(network: Network) -> str:
    # iptables-save prints nothing for "from anywhere".
    return f"-s {network} " if network.prefixlen else ""


def _docker_rules(wished: Wishes, sources: Sequence[str], port: int) -> list[str]:
    came_in = f"--ctorigdstport {port} --ctdir ORIGINAL"
    # DNAT: only what came in to a published port. What containers ask of other machines' same port is not ours.
    published = f"-p tcp -m conntrack --ctstate DNAT {came_in}"
    found = [f"-A {DOCKER} {source}{published} -j ACCEPT" for source in sources]
    for name in wished.docker_interfaces:
        found.append(f"-A {DOCKER} -i {name} {published} -j ACCEPT")
    found.append(f"-A {DOCKER} {published} -j DROP")
    # A neighbour can route to the container's own address, past the published port; Docker itself closes
    # that from 28.0 on (https://docs.docker.com/engine/release-notes/28/).
    for name in wished.docker_interfaces:
        found.append(f"-A {DOCKER} ! -i {name} -o {name} -p tcp -m conntrack {came_in} -j DROP")
    return found


def _input_rules(wished: Wishes, sources: Sequence[str], port: int, family: int) -> list[str]:
    to_port = f"-p tcp -m tcp --dport {port}"
    found = [f"-A {INPUT} -i {name} {to_port} -j ACCEPT" for name in ("lo", *wished.docker_interfaces)]
    if sources:
        found += _client_rules(wished, to_port, port, family)
    found += [f"-A {INPUT} {source}{to_port} -j ACCEPT" for source in sources]
    return [*found, f"-A {INPUT} {to_port} -j DROP"]


def _client_rules(wished: Wishes, to_port: str, port: int, family: int) -> list[str]:
    """The limits of one client: too many connections are refused, too many new ones a second have to wait.

    A client is an address; over IPv6 the /64 that every customer has of their own. Only a connection's first packet is
    looked at, and one that is dropped is sent again a second later.
    """
    new = f"-A {INPUT} {to_port} --tcp-flags FIN,SYN,RST,ACK SYN"
    mask, srcmask = (32, "") if family == 4 else (64, "--hashlimit-srcmask 64 ")
    found = []
    if wished.connections:
        above = f"-m connlimit --connlimit-above {wished.connections} --connlimit-mask {mask} --connlimit-saddr"
        found.append(f"{new} {above} -j REJECT --reject-with tcp-reset")
    if wished.rate:
        above = f"--hashlimit-above {wished.rate}/sec --hashlimit-burst {wished.rate * _BURST}"
        # The kernel keeps a table's settings for as long as a rule has its name: another rate is another table.
        by = f"--hashlimit-mode srcip --hashlimit-name drafthouse-{port}-{wished.rate} {srcmask}"
        found.append(f"{new} -m hashlimit {above} {by}-j DROP")
    return found


def own_connection(session: Session | None, family: int) -> list[str]:
    """The rule that keeps the running SSH connection, whatever else is on trial; none for the other family."""
    if session is None or session.family != family:
        return []
    source = ipaddress.ip_network(session.client)
    ports = f"--sport {session.client_port} --dport {session.server_port}"
    return [f"-A {INPUT} -s {source} -p tcp -m tcp {ports} -j ACCEPT"]


def restore_text(lines: Sequence[str]) -> str:
    """The body of an iptables-restore transaction that makes our chains exactly ``lines``."""
    # With --noflush naming a chain empties it, and no other.
    return "".join(f"{line}\n" for line in [f":{DOCKER} - [0:0]", f":{INPUT} - [0:0]", *lines])


def ours(saved: str) -> Ours:
    """Read one family's `iptables-save -t filter`."""
    found: dict[str, list[str]] = {}
    jumps: list[tuple[str, str, int]] = []
    places: dict[str, int] = {}
    docker_user = False
    for line in saved.splitlines():
        if line.startswith(":"):
            chain = line[1:].split()[0]
            docker_user = docker_user or chain == PARENT_OF[DOCKER]
            if chain in OURS:
                found[chain] = []
        elif line.startswith("-A "):
            chain = line.split()[1]
            places[chain] = places.get(chain, 0) + 1
            jump = _JUMP.fullmatch(line)
            if chain in OURS:
                found.setdefault(chain, []).append(line)
            elif jump and jump[2] in OURS:
                jumps.append((chain, jump[2], places[chain]))
    return Ours(found, tuple(jumps), docker_user)


def in_place(found: Ours, wanted: Sequence[str]) -> bool:
    """Tell whether our chains hold exactly ``wanted``, and each is jumped to once, before anything else."""
    target = would_be(found, wanted)
    return found.rules == target.rules and sorted(found.jumps) == sorted(target.jumps)


def shown(found: Ours) -> str:
    """What is ours as text, for a diff."""
    text = ""
    for parent, chain, place in found.jumps:
        text += f"-A {parent} -j {chain}  # place {place}\n"
    for chain in sorted(found.rules):
        text += "".join(f"{line}\n" for line in found.rules[chain])
    return text


def would_be(found: Ours, wanted: Sequence[str]) -> Ours:
    """What would be ours after ``wanted`` was put in place where ``found`` is now."""
    jumps = [(PARENT_OF[INPUT], INPUT, 1)]
    if found.docker_user:
        jumps.append((PARENT_OF[DOCKER], DOCKER, 1))
    by_chain: dict[str, list[str]] = {DOCKER: [], INPUT: []}
    for line in wanted:
        by_chain[line.split()[1]].append(line)
    return Ours(by_chain, tuple(jumps), found.docker_user)


def session(text: str | None) -> Session | None:
    """Read ``SSH_CONNECTION``: client, its port, server, its port. None where it is missing or no such thing."""
    words = (text or "").split()
    try:
        client, server = words[0].split("%")[0], words[2].split("%")[0]
        found = Session(client, int(words[1]), server, int(words[3]))
        ipaddress.ip_address(client)
    except (IndexError, ValueError):
        return None
    return found
