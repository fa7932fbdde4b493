"""A fleet as a table: what each replica is, what it serves, and how many requests it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.format import count
from ...core.table import table
from .replica import AWAY, READY

if TYPE_CHECKING:
    from drafthouse.addons.fleet.replica import ReplicaState

_HEAD = ("replica", "state", "running", "profile", "arm", "engine", "why")
_NOTHING: ReplicaState = {
    "state": AWAY, "why": "", "running": None, "profile": "", "arm": "", "engine": "", "version": "",
}  # fmt: skip


def found_of(resolved: Any, asked: Any) -> ReplicaState:
    """Return the state in Ansible's result of `replica_state`; of a box that could not be asked it has the reason.

    ``resolved`` and ``asked`` are the results of the two tasks that lead to it, None where one was not played.
    """
    for result in (asked, resolved):
        if result and result.get("replica"):
            state: ReplicaState = result["replica"]
            return state
        if result and (result.get("failed") or result.get("unreachable")):
            why = str(result.get("msg") or "").strip().splitlines()
            return {**_NOTHING, "why": why[0] if why else "it was not reached"}
    return {**_NOTHING, "why": "it was not asked"}


def status_text(fleet: Mapping[str, ReplicaState]) -> str:
    """Return the table of a fleet, and how many of it take requests."""
    rows = [
        (
            name,
            one["state"],
            "-" if one["running"] is None else str(one["running"]),
            one["profile"] or "-",
            one["arm"] or "-",
            f"{one['engine']} {one['version']}".strip() or "-",
            one["why"],
        )
        for name, one in fleet.items()
    ]
    ready = sum(one["state"] == READY for one in fleet.values())
    return f"{table(_HEAD, rows)}\n{ready} of {count(len(fleet), 'replica')} ready"
