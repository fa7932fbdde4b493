"""Write what each box of a fleet is and serves to a file of this machine, for `drafthouse fleet upgrade`."""

from __future__ import annotations

import json
from pathlib import Path

from ..module_utils.addons.fleet.status import found_of
from ..module_utils.core.files import replace_file
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.roll_state`: ``hosts`` are the boxes, ``file`` has a `Seen` of each afterwards."""

    _VALID_ARGS = frozenset({"hosts", "file"})

    def answer(self, variables: TaskVars) -> Answer:
        """Gather what was found of each box; of one that was not reached it has why."""
        seen = {}
        for host in self._task.args["hosts"]:
            own = variables["hostvars"][host]
            state = found_of(own.get("__fleet_resolved"), own.get("__fleet_state"))
            served = (own.get("drafthouse_box") or {}).get("served") or {}
            seen[str(host)] = {
                "state": state["state"],
                "why": state["why"],
                "same": bool(served.get("same") and not served.get("drift")),
                "key": (own.get("drafthouse_run") or {}).get("key", ""),
                "keys": served.get("keys", []),
            }
        replace_file(Path(self._task.args["file"]), json.dumps(seen))
        return {"changed": False}
