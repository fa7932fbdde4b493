"""Fail where a report's verdict is invalid, or where a measured change may not take the place of what serves."""

from __future__ import annotations

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.operate.failure_summary import gate_problems
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure


class ActionModule(Action):
    """`drafthouse.core.valid`: ``report`` is what `drafthouse.core.report` returned.

    A number that proves nothing must not end a run in green. With ``replaces`` another server serves, and what fails a
    gate does not take its place, unless ``serve_arm`` is baseline. ``profile`` is for the advice.
    """

    _VALID_ARGS = frozenset({"report", "replaces", "serve_arm", "profile"})
    _NEEDED = ("report",)

    def answer(self, variables: TaskVars) -> Answer:
        """Every reason against it."""
        given = self._task.args
        serve_arm = str(given.get("serve_arm", "auto")) if given.get("replaces") else "baseline"
        problems = gate_problems(given["report"], str(given.get("profile", "")), serve_arm)
        return failure(DrafthouseError(problems)) if problems else {"changed": False}
