"""Measure a fleet: a load sweep through its front, with the counters of every engine behind it.

Example:
  drafthouse fleet-measure --inventory fleet -- --model qwen --ca rentals/gateway/box1.pem --api-key-file key \
      --arm baseline --ladder 4,8,16,32,64 --kind chat --rounds 2 --round 1 --result fleet.json

Every host of the inventory is a replica. Its engine stays on loopback: its counters are read through a tunnel over SSH,
never through the front. What follows -- are options of `drafthouse bench`. The arms are measured in runs of their own,
into the same --result: switch every box to the other arm in between. --from HOST sends the load from load boxes.

Exit status: that of `drafthouse bench`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict, cast

from ..cloud.vast.local_state import state_folder
from ..core.errors import one_problem
from ..operate.tunnel import LOOPBACK, PORT, HostVars, hosts_of, tunnel, way_to
from . import bench
from .parser import Parser, parser_of
from .playbooks import inventory_path

#: The port of a fleet's front where the inventory names none.
FRONT_PORT = 8444


class FrontVars(TypedDict, total=False):
    """`drafthouse_fleet`, in what is needed to reach the front."""

    front: str
    port: int
    name: str


class FleetVars(HostVars, total=False):
    """What a replica's host says of the fleet."""

    drafthouse_fleet: FrontVars
    drafthouse_address: str


def options() -> Parser:
    """Return the parser of what is not bench's own."""
    parser = parser_of(__doc__, "fleet-measure")
    parser.add_argument("--inventory", default="fleet", help="inventory name, or a path (default: fleet)")
    parser.add_argument("--metrics-path", default="/metrics", help="where the engines have their counters")
    parser.add_argument("bench", nargs="*", metavar="-- OPTIONS", help="options of drafthouse bench")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Open the tunnels, and measure; return the exit code."""
    given = options().parse_args(argv)
    words: list[str] = given.bench
    hosts = cast("dict[str, FleetVars]", hosts_of(inventory_path(given.inventory)))
    if not any(word.split("=")[0] == "--base-url" for word in words):
        words += ["--base-url", front_url(hosts, str(given.inventory))]
    if "--metrics-key-file" not in words and "--api-key-file" in words[:-1]:
        # The engines know the fleet's key; over a tunnel it meets nobody else.
        words += ["--metrics-key-file", words[words.index("--api-key-file") + 1]]
    with ExitStack() as stack:
        for name, own in hosts.items():
            words += ["--metrics", f"{name}=http://{LOOPBACK}:{_reached(stack, hosts, name, own)}{given.metrics_path}"]
        return bench.main(words)


def front_url(hosts: Mapping[str, FleetVars], inventory: str) -> str:
    """Return the address of the fleet's front, as its inventory says it. Raises DrafthouseError."""
    fleet = next((own["drafthouse_fleet"] for own in hosts.values() if "drafthouse_fleet" in own), None)
    if fleet is None:
        raise one_problem(
            "no-host", "no drafthouse_fleet", "the front of a fleet", "name its address with --base-url", inventory
        )
    front = fleet.get("front") or next(iter(hosts))
    own = hosts.get(front, {})
    address = str(fleet.get("name") or own.get("ansible_host") or own.get("drafthouse_address") or front)
    return f"https://{f'[{address}]' if ':' in address else address}:{fleet.get('port') or FRONT_PORT}"


def _reached(stack: ExitStack, hosts: Mapping[str, FleetVars], name: str, own: FleetVars) -> int:
    """Return the port of this machine at which a replica's engine is reached."""
    if own.get("ansible_connection") == "local":
        return int(own.get("drafthouse_port") or PORT)
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = int(probe.getsockname()[1])
    known_hosts: Path = state_folder() / "known_hosts"
    stack.enter_context(tunnel(way_to(hosts, name, "--inventory"), port, known_hosts))
    return port
