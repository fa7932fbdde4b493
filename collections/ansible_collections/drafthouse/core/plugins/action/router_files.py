"""Render the files of a front's router on the controller, for the role `program`."""

from __future__ import annotations

from ..module_utils.addons.fleet.front import router_entries
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.router_files`: ``folder`` on the box, ``port``, how many ``replicas``, ``policy``.

    Returns ``entries``.
    """

    _VALID_ARGS = frozenset({"folder", "port", "replicas", "policy"})

    def answer(self, variables: TaskVars) -> Answer:
        """Render."""
        given = self._task.args
        numbers = int(given["port"]), int(given["replicas"])
        entries = router_entries(ROOT / "templates", str(given["folder"]), *numbers, str(given["policy"]))
        return {"changed": False, "entries": entries}
