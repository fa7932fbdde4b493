"""Lay files down on the box by the module of the same name; what the box's facts say is so costs nothing."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..module_utils.core.files import digest_of
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(ActionBase):
    """`drafthouse.core.laid_out`."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """Lay them down, unless each is known to lie there."""
        super().run(tmp, task_vars)
        known = ((task_vars or {}).get("drafthouse_box") or {}).get("digests") or {}
        entries = self._task.args.get("entries") or []
        if known and all("content" in one and known.get(one["path"]) == _digest(one) for one in entries):
            return {"changed": False, "paths": []}
        return dict(self._execute_module(module_args=self._task.args, task_vars=task_vars))


def _digest(entry: dict[str, str]) -> str:
    return digest_of(int(str(entry["mode"]), 8), entry["content"].encode())
