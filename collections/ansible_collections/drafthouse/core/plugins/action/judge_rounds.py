"""Judge the rounds measured so far, and decide whether to measure another one."""

from __future__ import annotations

from ..module_utils.analysis.verdict import judge
from ..module_utils.cloud.vast.clock import left_of
from ..module_utils.core.plain_text import printable
from ..module_utils.core.procfs import clocks
from ..module_utils.experiment.more_rounds import decide, interim_text
from ..module_utils.report.data.build import lasting
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.words import Answer, TaskVars

_MODULE = "drafthouse.core.judge_rounds"


class ActionModule(KeptResultsAction):
    """`drafthouse.core.judge_rounds`: ``resolved`` is the profile with its run, ``last`` the last round measured.

    The module merges the rounds on the box; here they are judged as the report will do it; then the module records the
    decision on the box. Returns ``last`` and ``steps``, which are to be measured now, and the interim verdict.
    """

    _VALID_ARGS = frozenset({"resolved", "last"})

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, with the lines of the interim verdict."""
        resolved = self._task.args["resolved"]
        merged = self.run_module(_MODULE, self._task.args, variables)
        if merged.get("failed") or self._task.check_mode:
            return merged
        results = {arm: self.result(resolved, arm, variables) for arm in ("baseline", "speculative")}
        lease = resolved.get("lease")
        costs = {int(number): float(seconds) for number, seconds in merged["costs"]}
        judgement = judge(results["baseline"], results["speculative"], lasting(resolved))
        left_s = left_of(lease, clocks()) if lease else None
        decision = decide(resolved["experiment"], costs, judgement, left_s)
        site = resolved["site"]
        text = interim_text(
            decision, resolved["experiment"]["most_rounds"], site.get("price_per_hour"), str(site.get("currency") or "")
        )
        interim = "\n".join(printable(line) for line in text.splitlines())
        recorded = self.run_module(_MODULE, {**self._task.args, "decided": decision}, variables)
        return {**recorded, "drafthouse_interim": interim}
