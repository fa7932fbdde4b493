"""Fail where a report's verdict is invalid: a number that proves nothing must not end a run in green."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.problems import HouseError, Problem
from ..plugin_utils.words import failure


class ActionModule(ActionBase):
    """`drafthouse.core.valid`: ``report`` is what `drafthouse.core.report` returned."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"report"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return every reason that makes the comparison invalid."""
        super().run(tmp, task_vars)
        report = self._task.args["report"]
        if not report["invalid"]:
            return {"changed": False}
        return failure(
            HouseError(
                [
                    Problem(
                        f"an invalid comparison: {reason}",
                        "two arms that differ in speculation only, and answered everything",
                        "mend that, then run again with -e remeasure=true",
                        report["directory"],
                    )
                    for reason in report["reasons"]
                ]
            )
        )
