"""Base class of the actions that read the results which are kept on a box."""

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
    """An action that reads results from the box; ``needed`` says in the error for a missing one what they are for."""

    needed = "both arms measured"

    def result(self, resolved: dict[str, Any], name: str, variables: TaskVars) -> ArmResult:
        """Contents of the profile's result ``name``.json. Raises DrafthouseError if there is none."""
        result: ArmResult = self._fetched(f"{resolved['result_dir']}/{name}.json")
        return result

    def _fetched(self, path: str) -> Any:
        # By a shell, because a module would start a Python for each file.
        answer = self._low_level_execute_command(f"cat {shlex.quote(path)}")
        if answer["rc"] != 0:
            do = "run site.yml --tags experiment, or the whole site.yml"
            raise one_problem("no-result", f"no result at {path}", self.needed, do)
        return json.loads(answer["stdout"])

    def ladder(self, resolved: dict[str, Any], variables: TaskVars) -> Ladder | None:
        """Results of the load sweep; None if the profile has none, or if it was never begun."""
        if not (resolved.get("experiment") or {}).get("ladder"):
            return None
        try:
            ladder: Ladder = self._fetched(f"{resolved['result_dir']}/ladder.json")
        except DrafthouseError:
            return None
        return ladder
