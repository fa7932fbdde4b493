"""Choose the replicas of a fleet's front: the boxes (hosts that serve) to which its gateway sends requests. No I/O.

This runs on the controller. After a run for some boxes only (`--limit`), the front keeps the others. A box that failed
in this run, or is no longer in the inventory, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from ...core.documents import BadDocument, json_of
from ...core.errors import one_problem
from ...core.schema import Findings, check
from ...core.typed_shape import shape_of

KEPT = "replicas.json"  # the front's file, in which it keeps its replicas between runs


class Entry(TypedDict):
    """A replica, as the front's file keeps it."""

    address: str  # of the box's gateway
    port: int
    certificate: str  # PEM, which the gateway must present
    served_name: str  # the model's name in the API


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
    """The valid entries in the ``text`` of the front's file, by the box's name; {} if it is no JSON object.

    Invalid entries are dropped without a word: the run writes the file anew.
    """
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
