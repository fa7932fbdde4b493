"""Render the files of a replica's prober on the controller, for the role `program`."""

from __future__ import annotations

from ..module_utils.addons.fleet.order import entries
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.replica_files`: ``resolved`` is the profile. Returns ``entries``."""

    _VALID_ARGS = frozenset({"resolved"})

    def answer(self, variables: TaskVars) -> Answer:
        """Render."""
        return {"changed": False, "entries": entries(ROOT / "templates", self._task.args["resolved"])}
