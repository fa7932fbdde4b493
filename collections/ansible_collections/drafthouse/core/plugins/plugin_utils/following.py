"""Base class of the actions that run a module in the background and show its progress.

A module cannot print while it runs. So it is started as an async job of Ansible that writes a progress file, and a
shell command on the box, which hardly disturbs a running measurement, reads what is new in the file.
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

# Before 2.21 Ansible starts a job with unquoted paths, which its wrapper splits at spaces.
_LACKS_QUOTES = as_version(__version__) < as_version("2.21")
_LONGEST_S = 24 * 3600  # time limit of a job
# Intervals between two looks at a job: the first is short, for jobs that are done at once; each next one is doubled.
_FIRST_LOOK_S = 0.05
_LOOK_EVERY_S = 1.0
# How long a lost connection may stay lost. The job goes on without one, but not if the box restarts.
_PATIENCE_S = 120.0
_RECONNECT_EVERY_S = 2.0
_TRY_S = 30.0  # the most that counts for one attempt: after more, the controller itself was asleep
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
    """An action that runs ``module`` with the task's arguments and ``progress_file``."""

    _supports_async = False
    module = ""
    show_every_s = 5.0
    # Whether to run the module in check mode first, which is faster than a job if there is nothing to do.
    looks_first = False
    _host = ""

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, whose progress is shown meanwhile."""
        arguments = dict(self._task.args)
        if self._task.check_mode:
            return self.run_module(self.module, arguments, variables)
        if self.looks_first and (looked := self._unchanged(arguments, variables)) is not None:
            return looked
        started = self.start(arguments, variables)
        if "job" not in started:
            return started
        return self.follow(started["job"], variables)

    def _unchanged(self, arguments: Arguments, variables: TaskVars) -> Answer | None:
        """Result of the module in check mode if there is nothing to do; None otherwise."""
        looked = self.look(arguments, variables)
        return None if looked.get("failed") or looked.get("changed", True) else looked

    def look(self, arguments: Arguments, variables: TaskVars) -> Answer:
        """Result of the module in check mode."""
        self._task.check_mode = True
        try:
            return self.run_module(self.module, arguments, variables)
        finally:
            self._task.check_mode = False
            # Ansible removes only the last temporary folder, which will be the job's. This one has the module's
            # arguments, which may include a token of the hub.
            if folder := self._connection._shell.tmpdir:
                self._remove_tmp_path(folder, force=True)

    def take_own(self) -> tuple[Arguments, bool, Any]:
        """Take ``background`` and ``job``, which the module does not have, out of the task's arguments.

        The result is the other arguments, True if the module is only to be started, and the job to wait for or None.
        """
        arguments = dict(self._task.args)
        background = boolean(arguments.pop("background", False))
        job = arguments.pop("job", None)
        self._task.args = arguments
        return arguments, background and not self._task.check_mode, job

    def begin(self, arguments: Arguments, variables: TaskVars) -> Answer:
        """Start the module if there is something to do; the result is its ``job``, else that of check mode."""
        looked = self.look(arguments, variables)
        if looked.get("failed") or not looked.get("changed"):
            return looked
        started = self.start(arguments, variables)
        if "job" not in started:
            return started
        return {"changed": False, **started}

    def start(self, arguments: Arguments, variables: TaskVars) -> Answer:
        """Start the module in the background; the result is ``job`` for `follow`, or Ansible's failure."""
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
            self._task.async_val = 0
            self._task.environment = environment
        if "ansible_job_id" not in started:
            self._remove_tmp_path(folder, force=True)
            return dict(started)
        # The job's id ends with a pid, which the command line of async_wrapper does not have; see `_runs`.
        name = str(started["ansible_job_id"]).split(".")[0]
        return {"job": {"name": name, "results_file": started["results_file"], "folder": folder}}

    def _found_on_path(self, variables: TaskVars) -> dict[str, Any]:
        """The variables with an interpreter that is found on PATH if its folder has a space, which Ansible splits."""
        folder, name = os.path.split(str(self._templar.template(variables.get("ansible_python_interpreter") or "")))
        if " " not in folder or not _LACKS_QUOTES:
            return variables
        path = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
        self._task.environment = [*(self._task.environment or []), {"PATH": path}]
        return {**variables, "ansible_python_interpreter": f"/usr/bin/env {name}"}

    def _low_level_execute_command(self, cmd: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Run a command as Ansible does, but quote the paths if it starts a job below a folder with a space.

        The module's path is quoted twice, because the wrapper splits it again.
        """
        folder = (self._connection._shell.tmpdir or "").rstrip("/")
        if _LACKS_QUOTES and self._task.async_val and " " in folder and "/async_wrapper.py " in cmd:
            wrapper = f"{folder}/async_wrapper.py"
            module = f"{folder}/AnsiballZ_{self.module.rpartition('.')[2]}.py"
            cmd = cmd.replace(wrapper, shlex.quote(wrapper)).replace(module, shlex.quote(shlex.quote(module)))
        return dict(super()._low_level_execute_command(cmd, *args, **options))

    def follow(self, job: dict[str, Any], variables: TaskVars) -> Answer:
        """Result of a job that was started; its progress is shown until it ends."""
        self._host = str(variables.get("inventory_hostname", ""))
        try:
            return self._follow(job["name"], job["results_file"], f"{job['folder']}/progress.jsonl")
        finally:
            self._remove_tmp_path(job["folder"], force=True)

    def _follow(self, job: str, results_file: str, progress_file: str) -> dict[str, Any]:
        read_bytes = 0
        last_shown = time.monotonic()
        pause_s = _FIRST_LOOK_S
        lines: list[str] = []
        while True:
            # Before the result is read, so that a job which ends in between has left its result.
            alive = pause_s < _LOOK_EVERY_S or self._runs(job)
            text = self._new_text(progress_file, read_bytes)
            read_bytes += len(text.encode())
            lines += text.splitlines()
            if lines and time.monotonic() - last_shown >= self.show_every_s:
                _display.display(f"  {self._host}: {shown_together(lines)}")
                lines = []
                last_shown = time.monotonic()
            result = self._result(results_file)
            if result is not None:
                return told(result)
            if not alive:
                return lost(_LOST)
            time.sleep(pause_s)
            pause_s = min(_LOOK_EVERY_S, 2 * pause_s)

    def _said(self, command: str) -> str:
        """Output of a shell command on the box, whatever its exit status.

        The job goes on without a connection, so a broken one is made again. Raises AnsibleConnectionFailure if that
        takes longer than `_PATIENCE_S`; time in which the controller slept (a laptop's lid) does not count.
        """
        lost_since: float | None = None
        waited_s = 0.0
        while True:
            try:
                output = self._low_level_execute_command(f"{command} 2>/dev/null || true").get("stdout") or ""
            except AnsibleAuthenticationFailure:
                raise
            except AnsibleConnectionFailure:
                now = time.monotonic()
                if lost_since is None:
                    _display.display(f"  {self._host}: connection lost; the work continues on the box; reconnecting")
                else:
                    waited_s += min(now - lost_since, _TRY_S)
                    if waited_s > _PATIENCE_S:
                        raise
                lost_since = now
                time.sleep(_RECONNECT_EVERY_S)
                continue
            # Over SSH Ansible uses a terminal, which ends lines with \r\n.
            return str(output).replace("\r\n", "\n")

    def _new_text(self, progress_file: str, read_bytes: int) -> str:
        """Whole lines of the progress file after its first ``read_bytes``."""
        text = self._said(f"tail -c +{read_bytes + 1} {shlex.quote(progress_file)}")
        return text[: text.rfind("\n") + 1]  # the next look reads a half-written line whole

    def _runs(self, job: str) -> bool:
        """True if a process of the job exists."""
        # The brackets keep grep from finding its own command line.
        return bool(self._said(f"grep -lsz '[{job[0]}]{job[1:]}' /proc/[0-9]*/cmdline"))

    def _result(self, results_file: str) -> dict[str, Any] | None:
        """Result of the job; None while it runs."""
        try:
            result = json.loads(self._said(f"cat {shlex.quote(results_file)}"))
        except ValueError:
            return None
        if not isinstance(result, dict) or not result.get("finished", "started" not in result):
            return None
        # As async_status with mode=cleanup, which would start a Python.
        self._said(f"rm -f {shlex.quote(results_file)}")
        return {key: value for key, value in result.items() if key not in ("finished", "started", "ansible_job_id")}


def told(result: Answer) -> Answer:
    """Result of a job, with a problem of ours if the module raised, or ended without a result (killed, out of memory).

    For a module that raised, Ansible would print "Unknown error": ansible-core 2.19 keeps the error in a form that it
    only reads from modules. For one without a result, Ansible's wrapper leaves ``cmd``, the output that it could not
    parse, and the traceback of its parser.
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


def lost(problem: Problem) -> Answer:
    """The failure of a job that ended without a result."""
    return {**failure(DrafthouseError(problem)), "lost": True}
