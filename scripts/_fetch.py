#!/usr/bin/env python3
"""Put weights in place on this very machine: a step of bundle.py, run with the Python of the box's own environment.

Reads {"items", "uv", "engine_python"} as JSON from stdin; the hub's token is HF_TOKEN, or what a login left here.
"""

from __future__ import annotations

import json
import sys
import time

from _clone import run

from drafthouse.core.exit_codes import DONE
from drafthouse.core.progress import Event, shown
from drafthouse.weights.hub_habits import client_cache, usual_token
from drafthouse.weights.install import Tools, put_all


def main() -> int:
    """Fetch what is missing; a line every five seconds."""
    given = json.load(sys.stdin)
    last = 0.0

    def tell(event: Event, important: bool = False) -> None:
        nonlocal last
        if important or time.monotonic() - last > 5:
            last = time.monotonic()
            print(f"  {shown(event)}", flush=True)

    tools = Tools(given["uv"], given["engine_python"], hub_token=usual_token(), client_cache=client_cache())
    for item, done in zip(given["items"], put_all(given["items"], tell, tools), strict=True):
        print(f"  {item['name']}: {'fetched and verified' if done['changed'] else 'is there'}")
    return DONE


if __name__ == "__main__":
    run(main)
