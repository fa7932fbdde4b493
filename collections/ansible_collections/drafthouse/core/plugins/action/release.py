"""Bring a server back and show how it comes up (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(FollowingAction):
    """`drafthouse.core.release`; what is so already costs one short answer."""

    module = "drafthouse.core.release"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Follow what starts a server; note at once that none should serve."""
        arguments = dict(self._task.args)
        if arguments.get("state") != "ended":
            return super().answer(variables)
        # A job has files of its own on the box, and a full disk must not keep a server from being stopped.
        return dict(self._execute_module(module_name=self.module, module_args=arguments, task_vars=variables))
