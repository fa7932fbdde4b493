"""What all actions of ours have in common: they work in check mode too, and what they raise is their task's failure."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.core.errors import DrafthouseError, one_problem
from .no_way_in import no_way_in
from .words import Answer, TaskVars, failure


class Action(ActionBase):
    """An action of ours; `answer` does the work."""

    _supports_check_mode = True
    #: Arguments without which there is nothing to do; `_VALID_ARGS` has all that there may be.
    _NEEDED: tuple[str, ...] = ()

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """What `answer` returns, or the problems that it raises."""
        super().run(tmp, task_vars)
        try:
            self._need(*self._NEEDED)
            return self.answer(task_vars or {})
        except DrafthouseError as error:
            return failure(error)
        except AnsibleError as error:
            problem = no_way_in(str(error), isinstance(error, AnsibleConnectionFailure))
            if problem is None:
                raise
            # Ansible counts a host that is unreachable apart, and ends with another exit code.
            away = isinstance(error, AnsibleConnectionFailure)
            return {**failure(DrafthouseError(problem)), "failed": not away, "unreachable": away}

    def answer(self, variables: TaskVars) -> Answer:
        """Do the task. Raises DrafthouseError."""
        raise NotImplementedError

    def _need(self, *names: str) -> None:
        """Raise DrafthouseError where arguments of these names are missing."""
        if missing := [name for name in names if name not in self._task.args]:
            found, action = f"no {' and no '.join(missing)}", self._task.action
            raise one_problem("missing-key", found, f"the arguments of {action}", f"see ansible-doc {action}", action)
