"""Which replicas a fleet's front has. Pure; the controller's part.

A run is often about some boxes alone (`--limit`): what the front has of the others stays. A box that failed in this run
is left out, and so is one that is no longer in the inventory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ...core.errors import one_problem
from ...profiles.render import render_file

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File, Folder

#: The front's Caddy has looked at the size before.
_MAX_BODY = 1_000_000_000
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
    if not isinstance(kept, dict):
        return {}
    whole = Entry.__required_keys__
    return {name: one for name, one in kept.items() if isinstance(one, dict) and whole <= set(one)}


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
            "no box of the fleet serves behind a gateway",
            "one at least",
            "see what failed above; drafthouse fleet up sets them up. The front is unchanged",
        )
    names = sorted({entry["served_name"] for entry in found.values()})
    if len(names) > 1:
        raise one_problem(
            "fleet-names-differ",
            f"replicas that serve {', '.join(names)}",
            "one name: any replica may get a client's request",
            "set served_name in drafthouse_fleet, then run again",
            "site.fleet.served_name",
        )
    return found


def router_entries(templates: Path, folder: str, port: int, replicas: int, policy: str) -> list[Folder | File]:
    """Return the folders and files of vllm-router beside a front, as `lay_out` takes them.

    It listens at ``port`` and, for its own metrics, at the next one. The front's Caddy has a port for each replica from
    the one behind that on (templates/gateway/Caddyfile.fleet.j2): the router knows no certificates of ours.
    """
    data = {
        "folder": folder,
        "port": port,
        "workers": [f"http://127.0.0.1:{port + 2 + at}" for at in range(replicas)],
        "policy": policy,
        "max_body_bytes": _MAX_BODY,
    }
    folders: list[Folder] = [{"path": path, "mode": "0750"} for path in (folder, f"{folder}/logs")]
    return [*folders, render_file(templates, "fleet/router.sh.j2", f"{folder}/serve.sh", "0755", data)]
