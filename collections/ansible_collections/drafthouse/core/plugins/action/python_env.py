"""Make a Python environment and show how far it is (the module of the same name does the work).

Two arguments more than the module's: ``background`` starts it and does not wait for it; what it returns as ``job`` is
handed to a later task, which sees it through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..module_utils.host.env_recipe import EnvRecipe
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, Arguments, TaskVars

if TYPE_CHECKING:
    from ..module_utils.host.box_types import BoxFacts


class ActionModule(FollowingAction):
    """`drafthouse.core.python_env`; what the box's facts say is made already costs no question."""

    module = "drafthouse.core.python_env"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Make it, or tell that it is as it should be."""
        arguments, begins, job = self.take_own()
        box = variables.get("drafthouse_box")
        if box and _is_made(arguments, box):
            return {"changed": False}
        if begins:
            return self.begin(arguments, variables)
        made = self.follow(job, variables) if job else {}
        # A box that was started again meanwhile has lost its job.
        return made if made and not made.get("lost") else super().answer(variables)


def _is_made(given: Arguments, box: BoxFacts) -> bool:
    """Tell whether it is there by the facts; what stands for a part of the box's image is always looked at."""
    stamp = box.get("environments", {}).get(given["path"])
    if not stamp or given.get("python") or "image_python" in stamp:
        return False
    same_python = box["python"].rpartition(".")[0] == stamp["python"]
    return same_python and EnvRecipe.of(given).sha256(stamp["python"]) == stamp["sha256"]
