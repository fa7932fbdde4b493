"""An action that runs the module of its own name in the background and shows its progress file.

A module cannot stream. It is started as Ansible's async job; a shell on the box, which costs next to
nothing beside a running measurement, hands over what the progress file has gained.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.release import __version__
from ansible.utils.display import Display

from ..module_utils.core.errors import DrafthouseError, Problem
from ..module_utils.core.progress import shown_together
from ..module_utils.core.versions import as_version
from .action import Action
from .words import Answer, Arguments, TaskVars, failure

# Before 2.21 Ansible started a job with its paths unquoted, and the job's wrapper took them apart at spaces.
_FORGETS_QUOTES = as_version(__version__) < as_version("2.21")
_LONGEST_S = 24 * 3600
# The first look comes soon, for what is done at once; then once a second.
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.05, 1.0
# How long a lost connection may stay lost: the job needs none, and a box that restarts is no longer worth waiting for.
_PATIENCE_S, _RECONNECT_EVERY_S = 120.0, 2.0
_TRY_S = 30.0  # what one attempt takes at most; more was no waiting
_LAST_WORDS = 400  # characters of what a job without a result left on its stderr
_LOST = Problem(
    "step-lost",
    "a long step that ended without a result on the box",
    "a process that runs until it is done",
    "check whether the box was restarted or ran out of memory (dmesg), then run again: it resumes",
)
_BROKE = Problem(
    "task-failed",
    "a long step failed on the box",
    "a step that succeeds",
    "fix what it names (a full disk, a missing permission), then run again: it resumes",
)
_display = Display()


class FollowingAction(Action):
    """Runs ``module`` with the task's arguments, plus ``progress_file``."""

    _supports_async = False
    module = ""
    show_every_s = 5.0
    # Ask the module in check mode first: what is done already costs one short answer instead of a job with its files.
    looks_first = False
    _host = ""

    def answer(self, variables: TaskVars) -> Answer:
        """Run the module and show its progress; return its result."""
        arguments = dict(self._task.args)
        if self._task.check_mode:
            return dict(self._execute_module(module_name=self.module, module_args=arguments, task_vars=variables))
        if self.looks_first and (looked := self._unchanged(arguments, variables)) is not None:
            return looked
        started = self.start(arguments, variables)
        return self.follow(started["job"], variables) if "job" in started else started

    def _unchanged(self, arguments: Arguments, variables: TaskVars) -> dict[str, Any] | None:
        """The module's answer where it says that there is nothing to do, otherwise None."""
        looked = self.look(arguments, variables)
        return None if looked.get("failed") or looked.get("changed", True) else looked

    def look(self, arguments: Arguments, variables: TaskVars) -> dict[str, Any]:
        """What the module says in check mode."""
        self._task.check_mode = True
        try:
            return dict(self._execute_module(module_name=self.module, module_args=arguments, task_vars=variables))
        finally:
            self._task.check_mode = False
            # The job gets a folder of its own, and Ansible removes one alone. In this one lie the module's arguments,
            # a token of the hub among them.
            if folder := self._connection._shell.tmpdir:
                self._remove_tmp_path(folder, force=True)

    def take_own(self) -> tuple[Arguments, bool, Any]:
        """Take ``background`` and ``job``, which the module does not know, out of the task's arguments.

        Return the others, whether the module is only to be begun, and the job that is to be followed.
        """
        arguments = dict(self._task.args)
        background, job = boolean(arguments.pop("background", False)), arguments.pop("job", None)
        self._task.args = arguments
        return arguments, background and not self._task.check_mode, job

    def begin(self, arguments: Arguments, variables: TaskVars) -> dict[str, Any]:
        """Start the module where there is something to do; a refusal is told now and not when it is waited for."""
        looked = self.look(arguments, variables)
        if looked.get("failed") or not looked.get("changed"):
            return looked
        started = self.start(arguments, variables)
        return {"changed": False, **started} if "job" in started else started

    def start(self, arguments: Arguments, variables: TaskVars) -> dict[str, Any]:
        """Start the module in the background; return ``job``, which `follow` takes, or why it could not be started."""
        self._make_tmp_path()
        folder = self._connection._shell.tmpdir
        progress_file = f"{folder}/progress.jsonl"
        self._task.async_val = _LONGEST_S
        environment = self._task.environment
        try:
            started = self._execute_module(
                module_name=self.module,
                module_args={**arguments, "progress_file": progress_file},
                task_vars=self._found_on_path(variables),
                wrap_async=True,
            )
        finally:
            self._task.async_val, self._task.environment = 0, environment
        if "ansible_job_id" not in started:
            self._remove_tmp_path(folder, force=True)
            return dict(started)
        # async_wrapper's own command line names the job without its pid.
        name = str(started["ansible_job_id"]).split(".")[0]
        return {"job": {"name": name, "results_file": started["results_file"], "folder": folder}}

    def _found_on_path(self, variables: TaskVars) -> dict[str, Any]:
        """The variables with an interpreter for async_wrapper, which takes a path apart at its spaces."""
        folder, name = os.path.split(str(self._templar.template(variables.get("ansible_python_interpreter") or "")))
        if " " not in folder or not _FORGETS_QUOTES:
            return variables
        path = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
        self._task.environment = [*(self._task.environment or []), {"PATH": path}]
        return {**variables, "ansible_python_interpreter": f"/usr/bin/env {name}"}

    def _low_level_execute_command(self, cmd: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Run a command as Ansible does; where it starts a job below a folder with a space, mend what it forgets.

        It does not quote the paths of the wrapper and of the module, and the wrapper takes the latter apart again.
        """
        folder = (self._connection._shell.tmpdir or "").rstrip("/")
        if _FORGETS_QUOTES and self._task.async_val and " " in folder and "/async_wrapper.py " in cmd:
            wrapper, module = f"{folder}/async_wrapper.py", f"{folder}/AnsiballZ_{self.module.rpartition('.')[2]}.py"
            cmd = cmd.replace(wrapper, shlex.quote(wrapper)).replace(module, shlex.quote(shlex.quote(module)))
        return dict(super()._low_level_execute_command(cmd, *args, **options))

    def follow(self, job: dict[str, Any], variables: TaskVars) -> dict[str, Any]:
        """Show the progress of a job that was started, until it has a result."""
        self._host = str(variables.get("inventory_hostname", ""))
        try:
            return self._follow(job["name"], job["results_file"], f"{job['folder']}/progress.jsonl")
        finally:
            self._remove_tmp_path(job["folder"], force=True)

    def _follow(self, job: str, results_file: str, progress_file: str) -> dict[str, Any]:
        read, last_shown, pause = 0, time.monotonic(), _FIRST_LOOK_S
        lines: list[str] = []
        while True:
            # Asked before the result is read: a job that ends in between has left its result.
            alive = pause < _LOOK_EVERY_S or self._runs(job)
            text = self._new_text(progress_file, read)
            read += len(text.encode())
            lines += text.splitlines()
            if lines and time.monotonic() - last_shown >= self.show_every_s:
                _display.display(f"  {self._host}: {shown_together(lines)}")
                lines, last_shown = [], time.monotonic()
            result = self._result(results_file)
            if result is not None:
                return told(result)
            if not alive:
                return lost(_LOST)
            time.sleep(pause)
            pause = min(_LOOK_EVERY_S, 2 * pause)

    def _said(self, command: str) -> str:
        """What a shell command on the box prints; its status does not matter.

        The job runs apart from the connection, so one that breaks is made again. Raises AnsibleConnectionFailure
        when that takes longer than _PATIENCE_S. While this machine itself stands (a laptop's lid), nobody waits.
        """
        lost: float | None = None
        waited_s = 0.0
        while True:
            try:
                said = self._low_level_execute_command(f"{command} 2>/dev/null || true").get("stdout") or ""
            except AnsibleAuthenticationFailure:
                raise
            except AnsibleConnectionFailure:
                now = time.monotonic()
                waited_s += min(now - lost, _TRY_S) if lost is not None else 0.0
                if lost is None:
                    _display.display(f"  {self._host}: connection lost; the work continues on the box; reconnecting")
                elif waited_s > _PATIENCE_S:
                    raise
                lost = now
                time.sleep(_RECONNECT_EVERY_S)
                continue
            # Over SSH Ansible asks for a terminal, which ends lines as typewriters did.
            return str(said).replace("\r\n", "\n")

    def _new_text(self, progress_file: str, read: int) -> str:
        text = self._said(f"tail -c +{read + 1} {shlex.quote(progress_file)}")
        return text[: text.rfind("\n") + 1]  # a half-written line comes whole the next time

    def _runs(self, job: str) -> bool:
        # The brackets keep the pattern from finding the command that looks for it.
        return bool(self._said(f"grep -lsz '[{job[0]}]{job[1:]}' /proc/[0-9]*/cmdline"))

    def _result(self, results_file: str) -> dict[str, Any] | None:
        """The finished job's result, or None while it runs."""
        try:
            result = json.loads(self._said(f"cat {shlex.quote(results_file)}"))
        except ValueError:
            return None
        if not isinstance(result, dict) or not result.get("finished", "started" not in result):
            return None
        # What async_status does with mode=cleanup, without starting a Python for it.
        self._said(f"rm -f {shlex.quote(results_file)}")
        return {key: value for key, value in result.items() if key not in ("finished", "started", "ansible_job_id")}


def told(result: dict[str, Any]) -> dict[str, Any]:
    """A job's result, in our words where the job ended without one (killed, or out of memory).

    Ansible's wrapper then leaves the traceback of its own parser, beside ``cmd`` and what it could not parse. Of a
    module that raised, ansible-core 2.19 keeps the error in a form that it reads from modules alone: it would say
    "Unknown error".
    """
    raised = result.get("exception")
    if result.get("failed") and "msg" not in result and isinstance(raised, dict):
        words = str((raised.get("event") or {}).get("msg") or "no reason").strip()
        return failure(DrafthouseError(replace(_BROKE, found=f"{_BROKE.found}: {words}")))
    if not (result.get("failed") and "cmd" in result and ("data" in result or "outdata" in result)):
        return result
    words = str(result.get("stderr") or "").strip()[-_LAST_WORDS:]
    found = f"{_LOST.found}; its last words:\n{words}" if words else _LOST.found
    return lost(replace(_LOST, found=found))


def lost(problem: Problem) -> dict[str, Any]:
    """The failure of a job that ended without a result of its own."""
    return {**failure(DrafthouseError(problem)), "lost": True}
