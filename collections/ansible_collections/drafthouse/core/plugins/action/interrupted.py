"""End what an interrupted run has left on the box, and say it for `drafthouse stoppable` (the module does the work)."""

from __future__ import annotations

import time

from ansible.utils.display import Display

from ..module_utils.core.places import WORK
from ..module_utils.core.procfs import is_gone
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

# Whoever interrupted the run kills it before that.
_RUN_S, _LOOK_S = 30.0, 0.05
_display = Display()


class ActionModule(Action):
    """`drafthouse.core.interrupted`: ``servers``; the home is the inventory's, and no profile is resolved for it.

    ``pid``: the interrupted run, on the controller. Nothing is ended before it has: it could start more.
    """

    _VALID_ARGS = frozenset({"servers", "pid"})

    def answer(self, variables: TaskVars) -> Answer:
        """The module's result."""
        arguments = dict(self._task.args)
        _await(int(arguments.pop("pid", 0)))
        # Not by profiles/workspace.py, whose imports take a good part of what Ctrl-C waits for.
        home = self._templar.template(variables.get("drafthouse_home", "~/drafthouse"))
        home = self._remote_expand_user(home) if home.startswith("~/") else str(WORK / home)
        result: Answer = self._execute_module(
            module_name="drafthouse.core.interrupted",
            module_args={**arguments, "home": home},
            task_vars=variables,
        )
        for line in result.get("said", ()):
            _display.display(f"  {variables.get('inventory_hostname')}: {line}")
        return result


def _await(pid: int) -> None:
    """Wait for the end of a process of this machine; pid 0 is none."""
    until = time.monotonic() + _RUN_S
    while pid and not is_gone(pid) and time.monotonic() < until:
        time.sleep(_LOOK_S)
