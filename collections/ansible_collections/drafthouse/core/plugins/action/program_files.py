"""Render the files of a program that runs beside the engine, for the role `program`."""

from __future__ import annotations

from ..module_utils.profiles.render import program_entries
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.program_files`: ``folder`` on the box, the ``template`` of serve.sh and its ``data``.

    ``order``: settings that the program reads from a file again and again. Returns ``entries`` for `laid_out`.
    """

    _VALID_ARGS = frozenset({"folder", "template", "data", "order"})
    _NEEDED = ("folder", "template", "data")

    def answer(self, variables: TaskVars) -> Answer:
        """The rendered files."""
        return {"changed": False, "entries": program_entries(ROOT / "templates", **self._task.args)}
