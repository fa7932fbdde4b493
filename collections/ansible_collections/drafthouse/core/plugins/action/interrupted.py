"""End what an interrupted run has left on the box, and say it for `drafthouse stoppable` (the module does the work)."""

from __future__ import annotations

from ansible.utils.display import Display

from ..module_utils.profiles.workspace import site_from
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

_display = Display()


class ActionModule(Action):
    """`drafthouse.core.interrupted`: ``servers``; the home is the inventory's, and no profile is resolved for it."""

    _VALID_ARGS = frozenset({"servers"})

    def answer(self, variables: TaskVars) -> Answer:
        """Return the module's result."""
        site = site_from({"drafthouse_home": self._templar.template(variables.get("drafthouse_home"))})
        result: Answer = self._execute_module(
            module_name="drafthouse.core.interrupted",
            module_args={**self._task.args, "home": site["home"]},
            task_vars=variables,
        )
        for line in result.get("said", ()):
            _display.display(f"  {variables.get('inventory_hostname')}: {line}")
        return result
