"""What was measured on a box, fetched from where it is kept there."""

from __future__ import annotations

import base64
import json
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.core.errors import DrafthouseError, Problem
from .words import TaskVars


class KeptResultsAction(ActionBase):
    """An action that reads results of the box; ``needed`` says what they are to it."""

    needed = "both arms measured"

    def result(self, resolved: dict[str, Any], name: str, variables: TaskVars) -> dict[str, Any]:
        """Fetch ``name``.json of a resolved profile. Raises DrafthouseError where there is none."""
        path = f"{resolved['result_dir']}/{name}.json"
        answer = self._execute_module(
            module_name="ansible.builtin.slurp", module_args={"src": path}, task_vars=variables
        )
        if answer.get("failed"):
            raise DrafthouseError(
                Problem(f"no result at {path}", self.needed, "run playbooks/experiment.yml, or the whole site.yml")
            )
        data: dict[str, Any] = json.loads(base64.b64decode(answer["content"]))
        return data

    def ladder(self, resolved: dict[str, Any], variables: TaskVars) -> dict[str, Any] | None:
        """Fetch the loads that were tried, None where the profile asks for none or they were never begun."""
        if not (resolved.get("experiment") or {}).get("ladder"):
            return None
        try:
            return self.result(resolved, "ladder", variables)
        except DrafthouseError:
            return None
