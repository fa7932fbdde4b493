"""Judge the two arms of a box and write the report on the controller."""

from __future__ import annotations

import os
from typing import Any

from ..module_utils.house import ROOT
from ..module_utils.problems import HouseError
from ..module_utils.report_data import build_report, lasting
from ..module_utils.report_files import write_report
from ..module_utils.terminal import verdict_table
from ..module_utils.verdict import INVALID, PAYS
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.words import failure


class ActionModule(KeptResultsAction):
    """`drafthouse.core.report`: ``resolved`` is the fact that `drafthouse.core.resolve` set.

    Reports go below ``folder``, which is relative to the clone.

    Returns ``verdict`` (its word), ``sentence``, ``reasons``, ``gates``, ``better_arm``, ``directory``, and the table
    for the end of the run.
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"resolved", "folder"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write the report, unless in check mode, and return what it says."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        resolved = self._task.args["resolved"]
        try:
            results = {arm: self.result(resolved, arm, variables) for arm in resolved["arms"]}
        except HouseError as error:
            return failure(error)
        host = str(variables.get("inventory_hostname", ""))
        kept = lasting(resolved)
        arms = (results["baseline"], results["speculative"])
        stock = results.get("stock")
        # What is measured of loads is kept while the ladder is climbed; without it the arms are judged all the same.
        ladder = self.ladder(resolved, variables)
        if self._task.check_mode:
            report = build_report(*arms, kept, host, stock, ladder)
            changed, directory = False, "reports (not written)"
        else:
            written = write_report(
                ROOT / self._task.args["folder"], *arms, kept, ROOT / "templates", host, stock, ladder
            )
            report, changed = written.report, written.changed
            directory = os.path.relpath(written.path)
        verdict = report["verdict"]
        return {
            "changed": changed,
            "verdict": verdict["word"],
            "reasons": verdict["reasons"],
            "sentence": verdict["sentence"],
            "gates": [{name: gate.get(name) for name in ("title", "word", "said")} for gate in report["gates"]],
            "better_arm": "speculative" if verdict["word"] == PAYS else "baseline",
            "directory": directory,
            "invalid": verdict["word"] == INVALID,
            "drafthouse_verdict": f"\n{verdict_table(report, width=100)}\nreport: {directory}/report.html",
        }
