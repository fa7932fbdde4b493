"""Fail if a report's verdict is invalid, or if a measured change may not replace the running server."""

from __future__ import annotations

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.operate.failure_summary import gate_problems
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure


class ActionModule(Action):
    """`drafthouse.core.valid`: ``report`` is the result of `drafthouse.core.report`.

    With ``replaces`` another server runs, and a measured change that fails a gate does not replace it, unless
    ``serve_arm`` is baseline. ``profile`` is named in the advice.
    """

    _VALID_ARGS = frozenset({"report", "replaces", "serve_arm", "profile"})
    _NEEDED = ("report",)

    def answer(self, variables: TaskVars) -> Answer:
        """A failure with every reason, if there are any."""
        given = self._task.args
        serve_arm = str(given.get("serve_arm", "auto")) if given.get("replaces") else "baseline"
        problems = gate_problems(given["report"], str(given.get("profile", "")), serve_arm)
        return failure(DrafthouseError(problems)) if problems else {"changed": False}
