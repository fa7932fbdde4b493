"""Judge the measurement of a box and write its report on the controller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.utils.color import ANSIBLE_COLOR

from ..module_utils.analysis.words import CANNOT_SAY, INVALID, PAYS
from ..module_utils.cloud.vast.run_and_destroy import RUN_FILE
from ..module_utils.core.addresses import in_brackets
from ..module_utils.core.places import CLOSING_FILE, WORK
from ..module_utils.core.shell import shell_words
from ..module_utils.core.table import terminal_columns
from ..module_utils.experiment.kept_rounds import end_measuring
from ..module_utils.operate.tunnel import PORT
from ..module_utils.profiles.resolved_types import Run
from ..module_utils.profiles.workspace import ROOT, resolved_profile
from ..module_utils.report.closing import closing_lines
from ..module_utils.report.connection import Connection
from ..module_utils.report.data.build import build_report, lasting
from ..module_utils.report.terminal import NARROWEST, WIDEST, verdict_table
from ..module_utils.report.writer import write_report
from ..plugin_utils.kept_results import KeptResultsAction
from ..plugin_utils.key_command import key_command_of
from ..plugin_utils.words import Answer, TaskVars


def arm_to_serve(word: str, served: Mapping[str, Any] | None) -> str:
    """Arm to serve after a verdict: the speculative one if it pays, else the baseline.

    ``word``: of the verdict. ``served``: what serves now, by the box's facts; None: nothing. If the verdict cannot say
    which arm is better, an arm of this same profile goes on serving.
    """
    if word == CANNOT_SAY and served and served.get("same"):
        return str(served["arm"])
    if word == PAYS:
        return "speculative"
    return "baseline"


def _inventory(variables: TaskVars) -> str:
    """The inventory as make takes it: a name below inventory/, or a path."""
    folder = Path(str(variables.get("inventory_dir") or ""))
    if folder.parent == ROOT / "inventory":
        return folder.name
    return str(variables.get("inventory_file") or "local")


class ActionModule(KeptResultsAction):
    """`drafthouse.core.report`: ``resolved`` is the profile with its run and its box.

    ``folder``: of the reports, relative to the clone. Returns ``verdict`` (its word), ``sentence``, ``reasons``,
    ``gates``, ``better_arm``, ``directory``, ``invalid``, and the table and the last lines for the end of the run.
    """

    _VALID_ARGS = frozenset({"resolved", "folder"})
    _NEEDED = ("resolved", "folder")

    def answer(self, variables: TaskVars) -> Answer:
        """The verdict; the report is written unless in check mode."""
        resolved = self._task.args["resolved"]
        if not self._task.check_mode:
            self._low_level_execute_command(end_measuring(resolved))
        results = {arm: self.result(resolved, arm, variables) for arm in resolved["arms"]}
        host = str(variables.get("inventory_hostname", ""))
        kept = lasting(resolved)
        # The hash of every possible prompt: too much for a fact, so it is computed again.
        kept["prompts"] = resolved_profile(resolved["profile"], resolved["site"], resolved["overrides"])["prompts"]
        arms = (results["baseline"], results["speculative"])
        stock = results.get("stock")
        ladder = self.ladder(resolved, variables)
        if self._task.check_mode:
            report = build_report(*arms, kept, host, stock, ladder)
            changed = False
            directory = "reports (not written)"
            page = None
        else:
            written = write_report(
                WORK / self._task.args["folder"], *arms, kept, ROOT / "templates", host, stock, ladder
            )
            report = written.report
            changed = written.changed
            directory = os.path.relpath(written.path)
            page = written.path / "report.html"
        verdict = report["verdict"]
        width = terminal_columns(NARROWEST, WIDEST)
        return {
            "changed": changed,
            "verdict": verdict["word"],
            "reasons": verdict["reasons"],
            "sentence": verdict["sentence"],
            "gates": [{name: gate.get(name) for name in ("title", "word", "said")} for gate in report["gates"]],
            "better_arm": arm_to_serve(verdict["word"], (resolved.get("box") or {}).get("served")),
            "directory": directory,
            "invalid": verdict["word"] == INVALID,
            "drafthouse_verdict": f"\n{verdict_table(report, width=width, colour=ANSIBLE_COLOR)}",
            "drafthouse_closing": closing_lines(
                report,
                resolved,
                _inventory(variables),
                page,
                destroyed=RUN_FILE in os.environ,
                connection=self._connection_of(resolved, host, _inventory(variables)),
                kept=not changed and not self._task.check_mode,
                # Then the lines are printed later, directly below the table.
                table_above=CLOSING_FILE in os.environ,
            ),
        }

    def _connection_of(self, resolved: Run, host: str, inventory: str) -> Connection | None:
        """How clients reach the server; None if it will not go on, or if the gateway's own lines say it."""
        if CLOSING_FILE in os.environ or RUN_FILE in os.environ or resolved.get("gateway"):
            return None
        address = resolved["site"]["host"]
        port = resolved["site"]["port"]
        tunnel = ""
        is_remote = self._connection.transport != "local"
        if is_remote:
            port = PORT  # the tunnel's end on the controller, whatever the server's port is
            tunnel = f"make tunnel INVENTORY={shell_words([inventory])} HOST={shell_words([host])}"
        if is_remote or address in ("0.0.0.0", "::"):  # noqa: S104
            address = "127.0.0.1"
        has_key = resolved["engine"].get("has_key")
        key_command = key_command_of(self._connection, resolved["key_file"], host) if has_key else ""
        url, served_name = f"http://{in_brackets(address)}:{port}/v1", str(resolved["target"]["served_name"])
        return Connection(url, served_name, key_command, tunnel)
