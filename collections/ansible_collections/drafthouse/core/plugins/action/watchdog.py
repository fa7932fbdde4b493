"""Tell a box's watchdog what it needs: the break-even from what was measured there."""

from __future__ import annotations

from ..module_utils.addons.watchdog.order import entries, order_of, schedule_overrides
from ..module_utils.profiles.watchdog_settings import SCHEDULE
from ..module_utils.profiles.workspace import ROOT, resolved_profile
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(KeptResultsAction):
    """`drafthouse.core.watchdog`: ``resolved`` is the profile with its run, ``overrides`` the run's own.

    It returns ``entries``, the files for the role `program`, the ``mode``, and ``points``: what a drafted token costs
    at each load, in target steps.
    """

    needed = "both arms measured: they give the acceptance rate above which it pays here"
    _VALID_ARGS = frozenset({"resolved", "overrides"})

    def answer(self, variables: TaskVars) -> Answer:
        """Work out the order."""
        resolved = self._task.args["resolved"]
        results = {arm: self.result(resolved, arm, variables) for arm in ("baseline", "speculative")}
        ladder = self.ladder(resolved, variables)
        order = order_of(resolved, results, ladder)
        scheduled = None
        if order["mode"] == SCHEDULE:
            given = dict(self._task.args.get("overrides") or {})
            overrides = schedule_overrides(resolved, ladder, given)
            scheduled = resolved_profile(resolved["profile"], resolved["site"], overrides)
        wanted = entries(ROOT / "templates", resolved, order, scheduled)
        return {"changed": False, "entries": wanted, "points": order["points"], "mode": order["mode"]}
