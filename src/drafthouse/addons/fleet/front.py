"""Which replicas a fleet's front has. Pure; the controller's part.

A run is often about some boxes alone (`--limit`): what the front has of the others stays. A box that failed in this run
is left out, and so is one that is no longer in the inventory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from ...core.errors import one_problem

KEPT = "replicas.json"


class Entry(TypedDict):
    """How the front reaches a box's gateway, the certificate that it must show (PEM), and the model's name there."""

    address: str
    port: int
    certificate: str
    served_name: str


def entry_of(found: Any, *, own: bool) -> Entry | None:
    """Return the entry of what a run found of a box, None where it found none; the front's ``own`` is on loopback."""
    if not found:
        return None
    return {
        "address": "127.0.0.1" if own else str(found["address"]).strip("[]"),
        "port": int(found["own_port"] if own else found["port"]),
        "certificate": str(found["certificate"]),
        "served_name": str(found["served_name"]),
    }


def kept_replicas(text: str) -> dict[str, Entry]:
    """Return what the front has, {} where its file is missing or cannot be read."""
    try:
        kept: dict[str, Entry] = json.loads(text)
    except ValueError:
        return {}
    whole = Entry.__required_keys__
    return {name: one for name, one in kept.items() if whole <= set(one)} if isinstance(kept, dict) else {}


def replicas_for(
    inventory: Iterable[str], played: Mapping[str, Entry | None], kept: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Return the replicas by name, in the inventory's order. Raises DrafthouseError where they make no fleet.

    ``played`` are the boxes of this run, None for one that failed; ``kept`` what the front has.
    """
    found = {name: entry for name in inventory if (entry := played[name] if name in played else kept.get(name))}
    if not found:
        raise one_problem(
            "no-replica",
            "no box of the fleet that serves behind a gateway",
            "one at least",
            "see what failed above; drafthouse fleet up sets them up. The front is left as it was",
        )
    names = sorted({entry["served_name"] for entry in found.values()})
    if len(names) > 1:
        raise one_problem(
            "fleet-names-differ",
            f"replicas that serve {', '.join(names)}",
            "one name: a client's request may come to any of them",
            "set served_name in drafthouse_fleet, then run again",
            "site.fleet.served_name",
        )
    return found
