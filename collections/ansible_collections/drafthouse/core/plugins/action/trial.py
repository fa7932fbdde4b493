"""Measure a running arm for the tuner with the module of the same name, show the progress, and keep the result here."""

from __future__ import annotations

import json
from pathlib import Path

from ..module_utils.core.files import replace_file
from ..module_utils.core.format import name_of
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(FollowingAction):
    """`drafthouse.core.trial`: more arguments come from the file ``task``; the trial goes to ``answers``/HOST.json.

    A file, because Ansible would read braces in prompts as templates if they were variables.
    """

    module = "drafthouse.core.trial"

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, of whose trial only status and number of requests are left; the file has all of it."""
        given = dict(self._task.args)
        task = given.pop("task", None)
        folder = given.pop("answers", None)
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
