"""Render the gateway's files on the controller, and lay them out on the box."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..module_utils.addons.gateway import Settings, definition, files
from ..module_utils.core.errors import DrafthouseError
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.words import Answer, TaskVars, failure


class ActionModule(ActionBase):
    """`drafthouse.core.gateway`: its arguments are the fields of `Settings`; it returns what `laid_out` says."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset(Settings.__dataclass_fields__)

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """Check the settings, render, and put what differs on the box."""
        super().run(tmp, task_vars)
        given = dict(self._task.args)
        for number in ("port", "max_body_mb", "body_timeout_s", "max_requests", "hold_s"):
            given[number] = int(given[number])
        try:
            entries = files(ROOT / "templates", Settings(**given))
        except DrafthouseError as error:
            return failure(error)
        answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": entries}, task_vars=task_vars or {}
        )
        return {**answer, "definition": definition(entries)}
