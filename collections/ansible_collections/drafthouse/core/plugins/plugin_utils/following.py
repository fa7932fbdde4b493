"""An action that runs the module of its own name in the background and shows its progress file.

A module cannot stream. It is started as Ansible's async job; a shell on the box, which costs next to
nothing beside a running measurement, hands over what the progress file has gained.
"""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.problems import HouseError
from ..module_utils.progress import shown
from .words import failure

_LONGEST_S = 24 * 3600
# The first look comes soon, for what is done at once; then once a second.
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.05, 1.0
_display = Display()


class FollowingAction(ActionBase):
    """Runs ``module`` with what `arguments` returns, plus ``progress_file``."""

    _supports_check_mode = True
    _supports_async = False
    module = ""
    show_every_s = 5.0

    def arguments(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the module's arguments; may raise HouseError."""
        return dict(self._task.args)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and show its progress; return its result."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            arguments = self.arguments(variables)
        except HouseError as error:
            return failure(error)
        if self._task.check_mode:
            return self._module(arguments, variables)
        self._make_tmp_path()
        progress_file = f"{self._connection._shell.tmpdir}/progress.jsonl"
        self._task.async_val = _LONGEST_S
        try:
            started = self._execute_module(
                module_name=self.module,
                module_args={**arguments, "progress_file": progress_file},
                task_vars=variables,
                wrap_async=True,
            )
            if "ansible_job_id" not in started:
                return dict(started)
            return self._follow(started, progress_file, str(variables.get("inventory_hostname", "")), variables)
        finally:
            self._task.async_val = 0
            self._remove_tmp_path(self._connection._shell.tmpdir, force=True)

    def _module(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(
            module_name=self.module, module_args=arguments, task_vars=variables
        )
        return result

    def _follow(
        self, started: dict[str, Any], progress_file: str, host: str, variables: dict[str, Any]
    ) -> dict[str, Any]:
        results_file = started["results_file"]
        read, last_shown, pending, pause = 0, time.monotonic(), "", _FIRST_LOOK_S
        while True:
            text = self._new_text(progress_file, read, results_file)
            read += len(text.encode())
            for line in text.splitlines():
                pending = shown(json.loads(line))
                if time.monotonic() - last_shown >= self.show_every_s:
                    _display.display(f"  {host}: {pending}")
                    last_shown, pending = time.monotonic(), ""
            result = self._job_result(started["ansible_job_id"], results_file, variables)
            if result is not None:
                return result
            time.sleep(pause)
            pause = min(_LOOK_EVERY_S, 2 * pause)

    def _new_text(self, progress_file: str, read: int, results_file: str) -> str:
        command = f"tail -c +{read + 1} {shlex.quote(progress_file)} 2>/dev/null || true"
        text = str(self._low_level_execute_command(command).get("stdout") or "")
        return text[: text.rfind("\n") + 1]  # a half-written line comes whole the next time

    def _job_result(self, job: str, results_file: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """Return the finished job's result, or None while it runs."""
        command = f"cat {shlex.quote(results_file)} 2>/dev/null || true"
        try:
            result = json.loads(str(self._low_level_execute_command(command).get("stdout") or ""))
        except ValueError:
            return None
        if not isinstance(result, dict) or ("started" in result and "finished" not in result):
            return None
        if result.get("finished") in (0, False):
            return None
        self._execute_module(
            module_name="ansible.builtin.async_status",
            module_args={"jid": job, "mode": "cleanup"},
            task_vars=variables,
        )
        return {key: value for key, value in result.items() if key not in ("finished", "started", "ansible_job_id")}
