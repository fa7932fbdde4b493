"""Hold the watch over a rented box's deadline: how long it still has is counted here, at this moment."""

from __future__ import annotations

from ..module_utils.cloud.deadline import program
from ..module_utils.cloud.vast.clock import left_of
from ..module_utils.core.box_archive import LIBRARY
from ..module_utils.core.procfs import clocks
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.deadline`: ``lease`` is the fact's (`drafthouse.core.resolve`); the rest goes to the module."""

    def answer(self, variables: TaskVars) -> Answer:
        """Give the box the seconds that are left; they are in the result, too."""
        arguments = dict(self._task.args)
        if lease := arguments.pop("lease", None):
            arguments |= {"left_s": left_of(lease, clocks()), "sure": lease["sure"]}
        arguments["program"] = program()
        arguments["power_off"] = (LIBRARY / "cloud" / "power_off.py").read_text("utf-8")
        result: Answer = self._execute_module(
            module_name="drafthouse.core.deadline", module_args=arguments, task_vars=variables
        )
        return {**result, "left_s": float(arguments["left_s"])}
