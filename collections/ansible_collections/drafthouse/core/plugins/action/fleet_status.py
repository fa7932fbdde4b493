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
        fleet = {
            str(host): found_of(
                *(variables["hostvars"][host].get(name) for name in ("__fleet_resolved", "__fleet_state"))
            )
            for host in self._task.args["hosts"]
        }
        return {"changed": False, "fleet": fleet, "drafthouse_verdict": f"\n{status_text(fleet)}"}
