"""Show what each replica of a fleet is, as `replica_state` found it."""

from __future__ import annotations

from ..module_utils.addons.fleet.status import found_of, status_text
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.fleet_status`: ``hosts`` are the replicas' names.

    Returns ``fleet``, the state of each, and the table, which stands at the end of the run.
    """

    _VALID_ARGS = frozenset({"hosts"})

    def answer(self, variables: TaskVars) -> Answer:
        """Gather what was found of each host."""
        known = {str(host): variables["hostvars"][host] for host in self._task.args["hosts"]}
        fleet = {host: found_of(own.get("__fleet_resolved"), own.get("__fleet_state")) for host, own in known.items()}
        return {"changed": False, "fleet": fleet, "drafthouse_verdict": f"\n{status_text(fleet)}"}
