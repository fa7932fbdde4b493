"""Ensure that a rented box ends at its deadline: compute the seconds that are left, and hand them to the module."""

from __future__ import annotations

from ..module_utils.cloud.deadline import program
from ..module_utils.cloud.vast.clock import left_of
from ..module_utils.core.box_archive import LIBRARY
from ..module_utils.core.procfs import clocks
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.deadline`: ``lease`` comes from the fact `drafthouse_run`; the rest goes to the module."""

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, with ``left_s``: the seconds that the box may still live."""
        arguments = dict(self._task.args)
        if lease := arguments.pop("lease", None):
            arguments |= {"left_s": left_of(lease, clocks()), "sure": lease["sure"]}
        arguments["program"] = program()
        arguments["power_off"] = (LIBRARY / "cloud" / "power_off.py").read_text("utf-8")
        result = self.run_module("drafthouse.core.deadline", arguments, variables)
        return {**result, "left_s": float(arguments["left_s"])}
