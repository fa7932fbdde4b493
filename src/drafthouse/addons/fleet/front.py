"""Which replicas a fleet's front has. Pure; the controller's part.

A run is often about some boxes alone (`--limit`): what the front has of the others stays. A box that failed in this run
is left out, and so is one that is no longer in the inventory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from ...core.documents import BadDocument, json_of
from ...core.errors import one_problem
from ...core.schema import Findings, check
from ...core.typed_shape import shape_of

KEPT = "replicas.json"


class Entry(TypedDict):
    """How the front reaches a box's gateway, the certificate that it must show (PEM), and the model's name there."""

    address: str
    port: int
    certificate: str
    served_name: str


def front_host(named: str, members: Sequence[str]) -> str:
    """The host that has the front: ``named`` by the inventory, or the first of the fleet's ``members``.

    Raises DrafthouseError if the named host is not one of them.
    """
    if not named:
        return members[0]
    if named not in members:
        raise one_problem(
            "no-such-host",
            f"the front {named}, which is no host of the fleet",
            f"one of {', '.join(members)}",
            "name one of them as front in drafthouse_fleet, or leave it out (the first)",
            "site.fleet.front",
        )
    return named


def kept_replicas(text: str) -> dict[str, Entry]:
    """What the front has, {} where its file is missing or cannot be read."""
    try:
        kept = json_of(text)
    except BadDocument:
        return {}
    right = shape_of(Entry)
    if not isinstance(kept, dict):
        return {}
    return {name: entry for name, entry in kept.items() if check(entry, right, Findings(KEPT))}


def replicas_for(
    inventory: Iterable[str], played: Mapping[str, Entry | None], kept: Mapping[str, Entry]
) -> dict[str, Entry]:
    """The replicas by name, in the inventory's order. Raises DrafthouseError where they make no fleet.

    ``played`` are the boxes of this run, None for one that failed; ``kept`` what the front has.
    """
    found: dict[str, Entry] = {}
    for name in inventory:
        entry = kept.get(name)
        if name in played:
            entry = played[name]
        if entry:
            found[name] = entry
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
