"""Set the firewall, then prove over a new connection that the box can still be reached (the module does the rest)."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleError

from ..module_utils.core.errors import DrafthouseError, Problem
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

_MODULE = "drafthouse.core.firewall"
_AGAIN_AFTER_S = 1.0
# How long the box may take to be back after it took the rules back, in seconds.
_BACK_WITHIN_S = 30


class ActionModule(Action):
    """`drafthouse.core.firewall`."""

    def answer(self, variables: TaskVars) -> Answer:
        """Run the module; where it put rules on trial, confirm them over a new connection or say why not."""
        began = time.monotonic()
        result = self._execute(variables)
        token = result.get("on_trial")
        if result.get("failed") or not token:
            return result
        seconds = float(self._task.args.get("confirm_seconds", 60))
        last = self._confirm(variables, token, until=began + seconds)
        if isinstance(last, dict):
            return {**last, "diff": result.get("diff", []), "rules": result.get("rules", {})} if last else last
        return failure(DrafthouseError(self._cut_off(last, seconds, began)))

    def _execute(self, variables: TaskVars, **more: Any) -> dict[str, Any]:
        arguments = {**self._task.args, **more}
        return dict(self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=variables))

    def _new_connection(self) -> None:
        # A local connection has nothing to close.
        if self._connection.transport != "local":
            self._connection.reset()

    def _confirm(self, variables: TaskVars, token: str, until: float) -> dict[str, Any] | str:
        """The module's answer over a new connection, or the last reason why there was none in time."""
        why = "no time left"
        while time.monotonic() < until:
            try:
                self._new_connection()
                result = self._execute(variables, confirm=token)
            except AnsibleError as error:
                why = str(error).strip().splitlines()[0]
            else:
                # A connection that was begun under the new rules can come through once they are gone.
                return result if not result.get("taken_back") else "one came through only after the rollback"
            time.sleep(_AGAIN_AFTER_S)
        return why

    def _cut_off(self, why: str, seconds: float, began: float) -> Problem:
        """Wait for the box to be back, and say what happened."""
        back = self._back_after(began, until=began + seconds + _BACK_WITHIN_S)
        end = f"it answered again {back:.0f} s after the change" if back else "it does not answer yet"
        return Problem(
            "firewall-would-lock-out",
            f"under the new rules no new SSH connection came through within {seconds:.0f} s ({why});"
            f" the box rolled them back by itself: {end}",
            "rules under which this controller can still reach the box",
            "compare firewall_port with the port SSH listens on"
            if back
            else "use its console: `drafthouse-firewall remove` removes our rules",
            "the role firewall",
        )

    def _back_after(self, began: float, until: float) -> float:
        """After how many seconds since ``began`` the box answers again, 0 where it does not."""
        while time.monotonic() < until:
            try:
                self._new_connection()
                self._low_level_execute_command("true")
                return time.monotonic() - began
            except AnsibleError:
                time.sleep(_AGAIN_AFTER_S)
        return 0.0
