"""Choose the replicas of a fleet's front: the boxes (hosts that serve) to which its gateway sends requests. No I/O.

This runs on the controller. A run with `--limit` is about some boxes only: the front keeps the others. A box that
failed in this run, or is no longer in the inventory, is left out.
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
    """The address of a box's gateway, the certificate that it must present (PEM), and the name of its model."""

    address: str
    port: int
    certificate: str
    served_name: str


def front_host(named: str, members: Sequence[str]) -> str:
    """The host of the front: ``named`` in the inventory, or the first of the fleet's ``members`` if that is ''.

    Raises DrafthouseError if the named host is not a member.
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
    """The valid entries in the ``text`` of the front's file, by name; {} if it is not valid JSON."""
    try:
        kept = json_of(text)
    except BadDocument:
        return {}
    shape = shape_of(Entry)
    if not isinstance(kept, dict):
        return {}
    return {name: entry for name, entry in kept.items() if check(entry, shape, Findings(KEPT))}


def replicas_for(
    inventory: Iterable[str], played: Mapping[str, Entry | None], kept: Mapping[str, Entry]
) -> dict[str, Entry]:
    """The replicas by name, in the inventory's order. Raises DrafthouseError if there are none, or their models differ.

    ``played``: the boxes of this run, None for one that failed. ``kept``: the replicas that the front has.
    """
    replicas: dict[str, Entry] = {}
    for name in inventory:
        entry = kept.get(name)
        if name in played:
            entry = played[name]
        if entry:
            replicas[name] = entry
    if not replicas:
        raise one_problem(
            "no-replica",
            "no box of the fleet serves behind a gateway",
            "one at least",
            "see what failed above; drafthouse fleet up sets them up. The front is unchanged",
        )
    names = sorted({entry["served_name"] for entry in replicas.values()})
    if len(names) > 1:
        raise one_problem(
            "fleet-names-differ",
            f"replicas that serve {', '.join(names)}",
            "one name: any replica may get a client's request",
            "set served_name in drafthouse_fleet, then run again",
            "site.fleet.served_name",
        )
    return replicas
