"""Forward the API of a box to http://127.0.0.1:8000 over SSH, until Ctrl-C.

Example:
  drafthouse tunnel --inventory vastai --port 8000

The box is a host of an inventory. With a single host no name is needed. The engine still requires the API key.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..addons.gateway import key_command
from ..cloud.vast.local_state import state_folder
from ..core.exit_codes import DONE
from ..core.foreground import signals_as_ctrl_c
from ..operate.tunnel import PORT, Tunnel, answers, hosts_of, tunnel, way_to
from ..profiles.workspace import inventory_path
from .parser import Parser, parser_of


def options() -> Parser:
    """The argument parser of `drafthouse tunnel`."""
    parser = parser_of(__doc__, "tunnel")
    parser.add_argument("--inventory", default="vastai", help="inventory name, or a path (default: vastai)")
    parser.add_argument("--host", default="", help="host of the inventory (default: the only one)")
    parser.add_argument("--port", type=int, default=PORT, help="local port (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Open the tunnel, print how to use it, and wait for Ctrl-C."""
    args = options().parse_args(argv)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        way = way_to(hosts_of(inventory_path(args.inventory)), args.host, str(args.inventory))
        # Whichever signal ends this process, the context managers end ssh too.
        with signals_as_ctrl_c(), tunnel(way, args.port, state_folder() / "known_hosts") as opened:
            print(_usage(opened), flush=True)
            opened.wait()
    except KeyboardInterrupt:
        print("\nthe tunnel is closed", flush=True)
    return DONE


def _usage(opened: Tunnel) -> str:
    """How to use an open tunnel, as text: the address, the key, a first request, and a note if nothing answers yet."""
    way = opened.way
    port = opened.port
    lines = [
        f"http://127.0.0.1:{port}/v1 is {way.name} ({way.ssh()[-1]}), port {way.api_port} there; Ctrl-C ends it",
        "",
        f'export DRAFTHOUSE_API_KEY="$({key_command(way.key_file, way.ssh(), sudo=way.sudo)})"',
        # No proxy: it would read the key, and 127.0.0.1 would be the proxy's machine.
        f"curl --silent --show-error --noproxy '*' http://127.0.0.1:{port}/v1/models"
        " --header @<(printf 'Authorization: Bearer %s' \"$DRAFTHOUSE_API_KEY\")",
    ]
    if not answers(port):
        lines += [
            "",
            f"nothing answers on port {way.api_port} of {way.name} yet: the engine is stopped, or still loading",
        ]
    return "\n".join(lines)
