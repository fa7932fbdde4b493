"""Make a Python environment with the module of the same name, and show the progress.

It has two more arguments than the module. With ``background`` the task starts the module and returns a job; a later
task with this ``job`` waits for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..module_utils.host.env_recipe import EnvRecipe
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, Arguments, TaskVars

if TYPE_CHECKING:
    from ..module_utils.host.box_types import BoxFacts


class ActionModule(FollowingAction):
    """`drafthouse.core.python_env`; nothing is run if the box's facts show that the environment is right already."""

    module = "drafthouse.core.python_env"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, or its ``job`` if it runs in the background."""
        arguments, begins, job = self.take_own()
        box = variables.get("drafthouse_box")
        if box and _is_made(arguments, box):
            return {"changed": False}
        if begins:
            return self.begin(arguments, variables)
        if job:
            result = self.follow(job, variables)
            # A job is lost if the box was restarted meanwhile.
            if not result.get("lost"):
                return result
        return super().answer(variables)


def _is_made(given: Arguments, box: BoxFacts) -> bool:
    """True if the facts have this environment's stamp. A stamp for a part of the box's image never counts."""
    stamp = box.get("environments", {}).get(given["path"])
    if not stamp or given.get("python") or "image_python" in stamp:
        return False
    same_python = box["python"].rpartition(".")[0] == stamp["python"]
    return same_python and EnvRecipe.of(given).sha256(stamp["python"]) == stamp["sha256"]
