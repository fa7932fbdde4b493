"""What all actions of ours have in common: they work in check mode too, and what they raise is their task's failure."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..module_utils.core.errors import DrafthouseError
from .words import Answer, TaskVars, failure


class Action(ActionBase):
    """An action of ours; `answer` does the work."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """Return what `answer` returns, or the problems that it raises."""
        super().run(tmp, task_vars)
        try:
            return self.answer(task_vars or {})
        except DrafthouseError as error:
            return failure(error)

    def answer(self, variables: TaskVars) -> Answer:
        """Do the task. Raises DrafthouseError."""
        raise NotImplementedError
