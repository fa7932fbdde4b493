"""End what an interrupted run has left on the box with the module of the same name, and print what was ended."""

from __future__ import annotations

import time

from ansible.utils.display import Display

from ..module_utils.core.places import WORK
from ..module_utils.core.procfs import is_gone
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

# Seconds to wait for the end of the interrupted run: `drafthouse stoppable` kills it earlier.
_RUN_S = 30.0
_LOOK_S = 0.05  # seconds between two looks
_display = Display()


class ActionModule(Action):
    """`drafthouse.core.interrupted`: ``servers`` goes to the module; our folder on the box comes from the inventory.

    ``pid``: the interrupted run, on the controller. It is waited for first, because it could start more.
    """

    _VALID_ARGS = frozenset({"servers", "pid"})

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module."""
        arguments = dict(self._task.args)
        _wait_for_end(int(arguments.pop("pid", 0)))
        # Not by profiles/workspace.py: whoever pressed Ctrl-C would wait for its many imports.
        home = self._templar.template(variables.get("drafthouse_home", "~/drafthouse"))
        home = self._remote_expand_user(home) if home.startswith("~/") else str(WORK / home)
        result = self.run_module("drafthouse.core.interrupted", {**arguments, "home": home}, variables)
        for line in result.get("said", ()):
            _display.display(f"  {variables.get('inventory_hostname')}: {line}")
        return result


def _wait_for_end(pid: int) -> None:
    """Wait at most `_RUN_S` for the end of a process of the controller; 0: none."""
    until = time.monotonic() + _RUN_S
    while pid and not is_gone(pid) and time.monotonic() < until:
        time.sleep(_LOOK_S)
