"""Render the watchdog's files, with the acceptance rates at which speculation breaks even on the box."""

from __future__ import annotations

from ..module_utils.addons.watchdog.order import entries, order_of
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(KeptResultsAction):
    """`drafthouse.core.watchdog`: ``resolved`` is the profile with its run.

    Returns ``entries``, the files for the role `program`, the ``mode``, and ``points``: the cost of a drafted token at
    each load, in target steps.
    """

    needed = "both arms measured: they give the acceptance rate above which it pays here"
    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """The files and the break-even points. Raises DrafthouseError unless both arms were measured."""
        resolved = self._task.args["resolved"]
        results = {arm: self.result(resolved, arm, variables) for arm in ("baseline", "speculative")}
        ladder = self.ladder(resolved, variables)
        order = order_of(resolved, results, ladder)
        wanted = entries(ROOT / "templates", resolved, order)
        return {"changed": False, "entries": wanted, "points": order["points"], "mode": order["mode"]}
