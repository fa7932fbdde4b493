"""Set the firewall with the module of the same name, and confirm over a new connection that the box can be reached."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleError

from ..module_utils.core.errors import DrafthouseError, Problem
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

_MODULE = "drafthouse.core.firewall"
_AGAIN_AFTER_S = 1.0
# Seconds that the box may take to answer again after it rolled the rules back.
_BACK_WITHIN_S = 30


class ActionModule(Action):
    """`drafthouse.core.firewall`."""

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module; a failure if it put rules on trial that could not be confirmed."""
        began = time.monotonic()
        result = self.run_module(_MODULE, self._task.args, variables)
        token = result.get("on_trial")
        if result.get("failed") or not token:
            return result
        seconds = float(self._task.args.get("confirm_seconds", 60))
        confirmed = self._confirm(variables, token, until=began + seconds)
        if isinstance(confirmed, str):
            return failure(DrafthouseError(self._cut_off(confirmed, seconds, began)))
        return {**confirmed, "diff": result.get("diff", []), "rules": result.get("rules", {})}

    def _new_connection(self) -> None:
        # A local connection has nothing to close.
        if self._connection.transport != "local":
            self._connection.reset()

    def _confirm(self, variables: TaskVars, token: str, until: float) -> dict[str, Any] | str:
        """Result of the module over a new connection, or the last reason why there was none in time."""
        arguments = {**self._task.args, "confirm": token}
        why = "no time left"
        while time.monotonic() < until:
            try:
                self._new_connection()
                result = self.run_module(_MODULE, arguments, variables)
            except AnsibleError as error:
                why = str(error).strip().splitlines()[0]
            else:
                # A connection begun under the new rules may come through only once they are gone.
                if result.get("taken_back"):
                    return "one came through only after the rollback"
                return result
            time.sleep(_AGAIN_AFTER_S)
        return why

    def _cut_off(self, why: str, seconds: float, began: float) -> Problem:
        """Wait until the box answers again; the problem, with whether it did. ``why`` is that of `_confirm`."""
        back_s = self._back_after(began, until=began + seconds + _BACK_WITHIN_S)
        if back_s is None:
            end = "it does not answer yet"
            do = "use its console: `drafthouse-firewall remove` removes our rules"
        else:
            end = f"it answered again {back_s:.0f} s after the change"
            do = "compare firewall_port with the port SSH listens on"
        return Problem(
            "firewall-would-lock-out",
            f"under the new rules no new SSH connection came through within {seconds:.0f} s ({why});"
            f" the box rolled them back by itself: {end}",
            "rules under which this controller can still reach the box",
            do,
            "the role firewall",
        )

    def _back_after(self, began: float, until: float) -> float | None:
        """Seconds from ``began`` until the box answers again; None if it does not before ``until``."""
        while time.monotonic() < until:
            try:
                self._new_connection()
                self._low_level_execute_command("true")
                return time.monotonic() - began
            except AnsibleError:
                time.sleep(_AGAIN_AFTER_S)
        return None
