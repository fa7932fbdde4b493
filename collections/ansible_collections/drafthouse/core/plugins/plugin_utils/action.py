"""Base class of our actions: they support check mode, and the errors that they raise become the task's failure."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.core.errors import DrafthouseError, one_problem
from .no_way_in import no_way_in
from .words import Answer, Arguments, TaskVars, failure


class Action(ActionBase):
    """Base of our actions; `answer` does the work."""

    _supports_check_mode = True
    #: Required arguments; Ansible's `_VALID_ARGS` has all that are allowed.
    _NEEDED: tuple[str, ...] = ()

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """Result of `answer`, or the failure for the error that it raised."""
        super().run(tmp, task_vars)
        try:
            self._need(*self._NEEDED)
            return self.answer(task_vars or {})
        except DrafthouseError as error:
            return failure(error)
        except AnsibleError as error:
            unreachable = isinstance(error, AnsibleConnectionFailure)
            problem = no_way_in(str(error), unreachable)
            if problem is None:
                raise
            # Ansible counts unreachable hosts separately, and exits with another code for them.
            return {**failure(DrafthouseError(problem)), "failed": not unreachable, "unreachable": unreachable}

    def answer(self, variables: TaskVars) -> Answer:
        """Do the task. Raises DrafthouseError."""
        raise NotImplementedError

    def run_module(self, name: str, arguments: Arguments, variables: TaskVars) -> Answer:
        """Result of the module ``name`` (with its collection), run on the box."""
        return dict(self._execute_module(module_name=name, module_args=arguments, task_vars=variables))

    def _need(self, *names: str) -> None:
        """Raise DrafthouseError if arguments of these names are missing."""
        if missing := [name for name in names if name not in self._task.args]:
            found, action = f"no {' and no '.join(missing)}", self._task.action
            raise one_problem("missing-key", found, f"the arguments of {action}", f"see ansible-doc {action}", action)
