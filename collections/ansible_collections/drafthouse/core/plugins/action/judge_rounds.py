"""Judge the rounds that were measured so far, and decide whether another one follows."""

from __future__ import annotations

from typing import Any

from ..module_utils.analysis.verdict import judge
from ..module_utils.cloud.vast.clock import left_of
from ..module_utils.core.plain_text import printable
from ..module_utils.core.procfs import clocks
from ..module_utils.experiment.more_rounds import decide, interim_text
from ..module_utils.report.data.build import lasting
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(KeptResultsAction):
    """`drafthouse.core.judge_rounds`: ``resolved`` is the profile with its run, ``last`` the last round measured.

    The box puts the rounds together, they are judged here as the report will judge them, and the box keeps what was
    decided. Returns ``last`` and ``steps``, what is to be measured now, and the interim verdict for people.
    """

    _VALID_ARGS = frozenset({"resolved", "last"})

    def answer(self, variables: TaskVars) -> Answer:
        """Judge, decide and keep."""
        resolved = self._task.args["resolved"]
        together = self._on_the_box(variables)
        if together.get("failed") or self._task.check_mode:
            return together
        results = {arm: self.result(resolved, arm, variables) for arm in ("baseline", "speculative")}
        lease = resolved.get("lease")
        costs = {int(number): float(seconds) for number, seconds in together["costs"]}
        judgement = judge(results["baseline"], results["speculative"], lasting(resolved))
        note = decide(resolved["experiment"], costs, judgement, left_of(lease, clocks()) if lease else None)
        site = resolved["site"]
        text = interim_text(
            note, resolved["experiment"]["most_rounds"], site.get("price_per_hour"), str(site.get("currency") or "")
        )
        told = "\n".join(printable(line) for line in text.splitlines())
        return {**self._on_the_box(variables, decided=note), "drafthouse_interim": told}

    def _on_the_box(self, variables: TaskVars, **more: Any) -> dict[str, Any]:
        arguments = {**self._task.args, **more}
        return dict(
            self._execute_module(module_name="drafthouse.core.judge_rounds", module_args=arguments, task_vars=variables)
        )
