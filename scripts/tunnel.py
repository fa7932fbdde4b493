#!/usr/bin/env python3
"""Hold http://127.0.0.1:8000 open as the API of a box, over SSH, until Ctrl-C.

The box is a host of an inventory; the only one needs no name. The API key is asked for by the engine as before.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from _clone import run

from drafthouse.addons.gateway import key_command
from drafthouse.cloud.vast.local_state import state_folder
from drafthouse.core.errors import DrafthouseError, Problem, did_you_mean
from drafthouse.core.exit_codes import DONE
from drafthouse.operate.tunnel import PORT, Tunnel, answers, hosts_of, tunnel, way_to
from drafthouse.profiles.workspace import ROOT


def main() -> int:
    """Open, say so, and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", default="vastai", help="a name below inventory/, or a path (default: vastai)")
    parser.add_argument("--host", default="", help="a host of it; the only one needs no name")
    parser.add_argument("--port", type=int, default=PORT, help="the port on this machine (default: %(default)s)")
    given = parser.parse_args()
    named = ROOT / "inventory" / given.inventory
    inventory = named if named.exists() else Path(given.inventory)
    if not inventory.exists():
        known = sorted(path.name for path in (ROOT / "inventory").iterdir())
        raise DrafthouseError(
            Problem(f"no inventory '{given.inventory}'", "one that is there", did_you_mean(named.name, known))
        )
    # However we are ended, ssh is ended with us.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        way = way_to(hosts_of(inventory), given.host, str(given.inventory))
        with tunnel(way, given.port, state_folder() / "known_hosts") as opened:
            print(_said(opened), flush=True)
            opened.wait()
    except KeyboardInterrupt:
        print("\nthe tunnel is closed", flush=True)
    return DONE


def _said(opened: Tunnel) -> str:
    way, port = opened.way, opened.port
    lines = [
        f"http://127.0.0.1:{port}/v1 is {way.name} ({way.ssh()[-1]}), port {way.api_port} there; Ctrl-C ends it",
        "",
        f'export DRAFTHOUSE_API_KEY="$({key_command(way.key_file, way.ssh(), sudo=way.sudo)})"',
        # A proxy would read the key, and has another 127.0.0.1.
        f"curl --silent --show-error --noproxy '*' http://127.0.0.1:{port}/v1/models"
        " --header @<(printf 'Authorization: Bearer %s' \"$DRAFTHOUSE_API_KEY\")",
    ]
    if not answers(port):
        lines += [
            "",
            f"nothing answers on port {way.api_port} of {way.name} yet: the engine does not serve, or is loading",
        ]
    return "\n".join(lines)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    run(main)
