"""Say whether the box can run the resolved profile; read only."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.preflight import gpu_problems, preflight_problems
from ..module_utils.problems import HouseError
from ..plugin_utils.words import failure


class ActionModule(ActionBase):
    """`drafthouse.core.preflight`: ``resolved`` is the fact that `drafthouse.core.resolve` set.

    ``after_host`` asks only what the host phase should have made true.
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"resolved", "after_host"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return every problem of the box."""
        super().run(tmp, task_vars)
        resolved = self._task.args["resolved"]
        look = gpu_problems if self._task.args.get("after_host") else preflight_problems
        problems = look(resolved, resolved["box"])
        return failure(HouseError(problems)) if problems else {"changed": False}
