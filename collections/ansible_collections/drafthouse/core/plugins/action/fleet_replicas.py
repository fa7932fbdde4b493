"""Gather the replicas behind a fleet's front: the healthy ones of this run, and those that the front has kept."""

from __future__ import annotations

import base64
import json

from ..module_utils.addons.fleet.front import KEPT, Entry, kept_replicas, replicas_for
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.fleet_replicas`: ``home`` is our folder on the front.

    Writes the list to the front, and returns it as ``replicas``, the role gateway's variable.
    """

    _VALID_ARGS = frozenset({"home"})
    _NEEDED = ("home",)

    def answer(self, variables: TaskVars) -> Answer:
        """Result of writing the list, with ``replicas``."""
        folder = f"{self._task.args['home']}/fleet"
        path = f"{folder}/{KEPT}"
        read = self.run_module("ansible.builtin.slurp", {"src": path}, variables)
        kept = kept_replicas(base64.b64decode(read.get("content") or "").decode("utf-8", "replace"))
        played: dict[str, Entry | None] = {}
        for host in variables["ansible_play_hosts_all"]:
            played[str(host)] = variables["hostvars"][host].get("drafthouse_front_entry")
        entries = replicas_for(variables["groups"]["all"], played, kept)
        wanted = [
            {"path": folder, "mode": "0755"},
            {"path": path, "mode": "0644", "content": json.dumps(entries, indent=1) + "\n"},
        ]
        answer = self.run_module("drafthouse.core.laid_out", {"entries": wanted}, variables)
        replicas = [
            {"name": name, **{key: entry[key] for key in ("address", "port", "certificate")}}
            for name, entry in entries.items()
        ]
        return {**answer, "replicas": replicas}
