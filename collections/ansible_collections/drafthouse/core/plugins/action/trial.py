"""Ask a running arm, show how far that is, and keep the answer on the controller (the module does the work)."""

from __future__ import annotations

import json
from pathlib import Path

from ..module_utils.core.files import replace_file
from ..module_utils.core.format import name_of
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(FollowingAction):
    """`drafthouse.core.trial`: what is asked comes from the file ``task``, the trial goes to ``answers``/<host>.json.

    Through a file, because prompts are text: as variables their braces would be read as templates.
    """

    module = "drafthouse.core.trial"

    def answer(self, variables: TaskVars) -> Answer:
        """Run the module and follow it; write what it found where the tuner reads it."""
        given = dict(self._task.args)
        task, folder = given.pop("task", None), given.pop("answers", None)
        if task:
            given |= json.loads(Path(task).read_text("utf-8"))
        self._task.args = given
        result = super().answer(variables)
        trial = result.get("trial")
        if not folder or not trial:
            return result
        host = name_of(str(variables.get("inventory_hostname", ""))) or "box"
        path = Path(folder) / f"{host}.json"
        replace_file(path, json.dumps(trial) + "\n", None)
        return {**result, "trial": {"status": trial["status"], "asked": trial["asked"]}}
