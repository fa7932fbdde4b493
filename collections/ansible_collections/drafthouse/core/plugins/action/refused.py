"""Restore the last known-good server after a change that failed, and fail with the reasons of both."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, cast

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.operate.failure_summary import both, brief, is_superseded, reason_of
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, TaskVars, failure

if TYPE_CHECKING:
    from ..module_utils.operate.failure_summary import TaskResult


class ActionModule(FollowingAction):
    """`drafthouse.core.refused`: ``resolved`` is the profile with its run and box, ``failed`` the failed task's result.

    Nothing is restored if nothing served before, if a newer run ended this one, or in check mode; then it only fails
    with the first reason.
    """

    module = "drafthouse.core.release"
    _NEEDED = ("resolved", "failed")

    def answer(self, variables: TaskVars) -> Answer:
        """The failure, after the restore."""
        arguments = dict(self._task.args)
        resolved = arguments["resolved"]
        failed = arguments["failed"]
        why = reason_of(failed)
        task = str(arguments.get("task") or "")
        served = (resolved["box"].get("served") or {}).get("release")
        if not served or is_superseded(failed) or self._task.check_mode:
            # Its problems were printed when it failed.
            return {"failed": True, "changed": False, "msg": why.found.splitlines()[0]}
        home = resolved["site"]["home"]
        # Frees room on a full disk first: Ansible's temporary files need some.
        self._low_level_execute_command(f"rm -f {shlex.quote(home)}/served/ballast")
        engine = resolved["engine"]
        change = {"profile": resolved["profile"], "engine": engine["id"], "version": engine["version"]}
        change["why"] = brief(why.found)
        self._task.args = {"home": home, "state": "put_back", "refused": change}
        back = cast("TaskResult", super().answer(variables))
        return {**failure(DrafthouseError(both(why, task, resolved, back))), "refused": True}
