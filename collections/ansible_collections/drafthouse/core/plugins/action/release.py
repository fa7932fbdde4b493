"""Record or restore what serves with the module of the same name, and show the progress."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(FollowingAction):
    """`drafthouse.core.release`."""

    module = "drafthouse.core.release"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, run in the background unless ``state`` is ended."""
        arguments = dict(self._task.args)
        if arguments.get("state") != "ended":
            return super().answer(variables)
        # No background job: it needs files on the box, and a full disk must not prevent the stop of a server.
        return self.run_module(self.module, arguments, variables)
