"""What was measured on a box, fetched from where it is kept there."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from ..module_utils.core.errors import DrafthouseError, one_problem
from .action import Action
from .words import TaskVars

if TYPE_CHECKING:
    from ..module_utils.bench.result_types import ArmResult
    from ..module_utils.bench.sweep.ladder_types import Ladder


class KeptResultsAction(Action):
    """An action that reads results of the box; ``needed`` says what they are to it."""

    needed = "both arms measured"

    def result(self, resolved: dict[str, Any], name: str, variables: TaskVars) -> ArmResult:
        """Fetch ``name``.json of a resolved profile. Raises DrafthouseError where there is none."""
        result: ArmResult = self._fetched(f"{resolved['result_dir']}/{name}.json")
        return result

    def _fetched(self, path: str) -> Any:
        # A shell on the box; a module would start a Python for each of them.
        answer = self._low_level_execute_command(f"cat {shlex.quote(path)}")
        if answer["rc"] != 0:
            raise one_problem(
                "no-result",
                f"no result at {path}",
                self.needed,
                "run site.yml --tags experiment, or the whole site.yml",
            )
        return json.loads(answer["stdout"])

    def ladder(self, resolved: dict[str, Any], variables: TaskVars) -> Ladder | None:
        """Fetch the loads that were tried, None where the profile asks for none or they were never begun."""
        if not (resolved.get("experiment") or {}).get("ladder"):
            return None
        try:
            ladder: Ladder = self._fetched(f"{resolved['result_dir']}/ladder.json")
        except DrafthouseError:
            return None
        return ladder
