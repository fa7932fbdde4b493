"""A change failed: bring the last good server back, and fail with both reasons."""

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
    """`drafthouse.core.refused`: ``resolved`` is the profile with its run and its box, ``failed`` what ended it.

    Where nothing served before, a newer run ended this one, or in check mode, nothing is brought back: it fails as it
    had.
    """

    module = "drafthouse.core.release"
    _NEEDED = ("resolved", "failed")

    def answer(self, variables: TaskVars) -> Answer:
        """Bring it back, and return the failure."""
        arguments = dict(self._task.args)
        resolved, failed = arguments["resolved"], arguments["failed"]
        why, task = reason_of(failed), str(arguments.get("task") or "")
        served = (resolved["box"].get("served") or {}).get("release")
        if not served or is_superseded(failed) or self._task.check_mode:
            # Its problems were printed when it failed.
            return {"failed": True, "changed": False, "msg": why.found.splitlines()[0]}
        home = resolved["site"]["home"]
        # Past Ansible's own temporary files, for which a full disk has no room.
        self._low_level_execute_command(f"rm -f {shlex.quote(home)}/served/ballast")
        engine = resolved["engine"]
        self._task.args = {
            "home": home,
            "state": "put_back",
            "refused": {
                "profile": resolved["profile"],
                "engine": engine["id"],
                "version": engine["version"],
                "why": brief(why.found),
            },
        }
        back = cast("TaskResult", super().answer(variables))
        return {**failure(DrafthouseError(both(why, task, resolved, back))), "refused": True}
