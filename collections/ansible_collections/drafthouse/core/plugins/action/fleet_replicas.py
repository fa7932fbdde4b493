"""Gather the replicas of a fleet's front: those of this run that are well, and what it has of the others."""

from __future__ import annotations

import base64
import json

from ..module_utils.addons.fleet.front import KEPT, Entry, kept_replicas, replicas_for
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.fleet_replicas`: ``home`` is our folder on the front.

    Returns ``replicas`` as the role gateway takes them, and writes them down on the front.
    """

    _VALID_ARGS = frozenset({"home"})
    _NEEDED = ("home",)

    def answer(self, variables: TaskVars) -> Answer:
        """Join what this run found with what is kept."""
        folder = f"{self._task.args['home']}/fleet"
        path = f"{folder}/{KEPT}"
        read = self._execute_module(module_name="ansible.builtin.slurp", module_args={"src": path}, task_vars=variables)
        kept = kept_replicas(base64.b64decode(read.get("content") or "").decode("utf-8", "replace"))
        played: dict[str, Entry | None] = {}
        for host in variables["ansible_play_hosts_all"]:
            played[str(host)] = variables["hostvars"][host].get("drafthouse_front_entry")
        entries = replicas_for(variables["groups"]["all"], played, kept)
        wanted = [
            {"path": folder, "mode": "0755"},
            {"path": path, "mode": "0644", "content": json.dumps(entries, indent=1) + "\n"},
        ]
        answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": wanted}, task_vars=variables
        )
        replicas = [
            {"name": name, **{key: entry[key] for key in ("address", "port", "certificate")}}
            for name, entry in entries.items()
        ]
        return {**answer, "replicas": replicas}
