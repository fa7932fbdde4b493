"""Lay files down on the box by the module of the same name; what the box's facts say is so costs nothing."""

from __future__ import annotations

from ..module_utils.core.files import digest_of
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.laid_out`."""

    def answer(self, variables: TaskVars) -> Answer:
        """Lay them down, unless each is known to lie there."""
        known = (variables.get("drafthouse_box") or {}).get("digests") or {}
        entries = self._task.args.get("entries") or []
        if known and all("content" in one and known.get(one["path"]) == _digest(one) for one in entries):
            return {"changed": False, "paths": []}
        return dict(self._execute_module(module_args=self._task.args, task_vars=variables))


def _digest(entry: dict[str, str]) -> str:
    return digest_of(int(str(entry["mode"]), 8), entry["content"].encode())
