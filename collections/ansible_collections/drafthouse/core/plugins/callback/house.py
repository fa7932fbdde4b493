"""Lines of ours beside Ansible's output: problems, signs of life of silent tasks, the verdict and the doctor's checks.

This is a notification callback, so Ansible's output stays as its users know it.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: house
type: notification
short_description: Problems as lines of their own, progress of silent tasks, verdict and doctor at the end
description:
  - Prints found/needed/do of a failed task as lines of their own.
  - Prints every 7 seconds that a silent task still runs, and for how long.
  - Prints an interim verdict at once, before another round is measured.
  - Ends the run with the verdict table and the doctor's failed checks of every box (with -v all checks), the state of
    rented boxes that were lost on the way, and a line each for verdict, next command and report.
"""

import contextlib
import io
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

from ..module_utils.cloud.vast.client import DEFAULT_URL, VastClient, key_of_environment
from ..module_utils.cloud.vast.run_and_destroy import RUN_FILE, instance_state
from ..module_utils.core.box_archive import archive
from ..module_utils.core.errors import DrafthouseError, one_problem
from ..module_utils.core.exit_codes import FAILED
from ..module_utils.core.places import CLOSING_FILE, ROOT
from ..module_utils.core.plain_text import printable, printable_lines
from ..module_utils.core.table import terminal_columns
from ..module_utils.core.typed import with_verbs
from ..module_utils.operate.checks.finding import FAIL, FILE, WARN, Finding, fail, of_problem, report
from ..module_utils.profiles.catalog import load_catalog

_EVERY_S = 7.0
_RESOLVES = "drafthouse.core.resolve"
_COLOURS = {FAIL: "red", WARN: "yellow"}
# Actions that show the progress of their module (plugin_utils/following.py).
_SHOW_PROGRESS = (
    "drafthouse.core.benchmark",
    "drafthouse.core.derived_image",
    "drafthouse.core.engine_ready",
    "drafthouse.core.hf_snapshot",
    "drafthouse.core.python_env",
    "drafthouse.core.refused",
    "drafthouse.core.release",
    "drafthouse.core.trial",
    "drafthouse.core.weights",
)


class CallbackModule(CallbackBase):
    """Prints or collects the keys `problems` and `drafthouse_*` (verdict, interim, closing, doctor) of results."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "drafthouse.core.house"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        # Ansible does not flush: through a pipe all lines would come at the end.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        # For the workers, which have no terminal.
        os.environ["COLUMNS"] = str(terminal_columns())
        self._verdicts: list[str] = []
        # By host.
        self._closing: dict[str, str] = {}
        self._checks: dict[str, list[Finding]] = {}
        self._lost: dict[str, tuple[dict[str, Any], str]] = {}  # a rented box's variables, and why it was lost
        self._ticker: _Ticker | None = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Refuse `--start-at-task`, which would skip the first tasks that every phase needs."""
        if context.CLIARGS.get("start_at_task"):
            do = "use --tags: ansible-playbook site.yml --list-tags names them"
            needed = "the first tasks, which resolve the profile"
            refusal = one_problem("conflicting-options", "--start-at-task", needed, do)
            self._display.display(str(refusal), color="red", stderr=True)
            raise SystemExit(FAILED)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Write the ids of the run's rented boxes, which may be none, to the file that RUN_FILE names."""
        file = os.environ.get(RUN_FILE)
        if file:
            hosts = play.get_variable_manager()._inventory.get_hosts(play.hosts)
            found = {host.vars["drafthouse_instance"] for host in hosts if "drafthouse_instance" in host.vars}
            # Not for a play on the controller alone, such as the first one.
            if any(host.name != "localhost" for host in hosts):
                Path(file).write_text(json.dumps({"instances": sorted(found)}), "utf-8")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Watch the new task instead of the last one."""
        if task.action == _RESOLVES:
            # Read here once, and cached: the process of each host is a fork of this one.
            with contextlib.suppress(DrafthouseError):  # the task reports it
                load_catalog(ROOT)
            archive()
        self._watch(task)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """Watch a handler as well."""
        self._watch(task)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Print the problems of a failed task, one fact a line."""
        self._print_problems(result)
        self._keep_verdict(result)
        if not ignore_errors:
            self._keep_lost(result)
            self._keep_fault(result, "before-doctor", "before the doctor")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Print the problems, and keep the box for the end of the run."""
        if result._task.ignore_unreachable:
            return  # a task for the box that is delegated to another machine
        self._print_problems(result)
        self._keep_lost(result)
        self._keep_fault(result, "reachable", "reachable")

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Print the problems of an item of a loop."""
        self._print_problems(result)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep the verdict and the doctor's checks for the end; print an interim verdict."""
        self._keep_verdict(result)
        if interim := result._result.get("drafthouse_interim"):
            host = result._host.get_name()
            self._display.display("\n" + "\n".join(f"{host}: {printable(line)}" for line in interim.splitlines()))
        if "drafthouse_doctor" in result._result:
            self._checks[result._host.get_name()] = [Finding(**check) for check in result._result["drafthouse_doctor"]]

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print all that was kept: verdicts, checks, lost boxes and closing lines."""
        self._watch(None)
        for text in self._verdicts:
            self._display.display(text)
        self._say_checks()
        for name, (variables, why) in self._lost.items():
            # Not if a rescue has recovered it.
            if name in stats.failures or name in stats.dark:
                self._display.display(f"{name}: {why}; {_fate(variables)}", color="red")
        self._say_closing()

    def _keep_lost(self, result: Any) -> None:
        """Keep a rented box that failed, with the first reason."""
        variables = result._host.vars
        if "drafthouse_instance" not in variables:
            return
        why = f"lost in '{result._task.get_name().strip()}'"
        lines = str(result._result.get("msg") or "").strip().splitlines()
        if lines:
            why += f" ({lines[0][:160]})"
        self._lost.setdefault(result._host.get_name(), (dict(variables), why))

    def _keep_fault(self, result: Any, check: str, name: str) -> None:
        """In a run for the doctor alone, keep a failure before its checks as a check, ``check`` its id."""
        host = result._host.get_name()
        if FILE not in os.environ or host in self._checks:
            return
        found = (str(result._result.get("msg") or "").strip() or "no reason").splitlines()[0]
        do = "check that the box runs and that its address, port and user in the inventory are right, then run again"
        faults = [of_problem(problem) for problem in result._result.get("problems") or []]
        if not faults:
            faults = [fail(found, "a box that the doctor can reach", do)]
        self._checks[host] = [replace(fault, id=check, name=name) for fault in faults]

    def _say_checks(self) -> None:
        """Print the checks that warn or fail, with -v all; write all to the file that the environment names."""
        for host, checks in self._checks.items():
            *lines, total = report(host, checks)
            self._display.display("")
            for line, check in zip(lines, checks, strict=True):
                if self._display.verbosity or check.status in _COLOURS:
                    self._display.display(line, color=_COLOURS.get(check.status))
            self._display.display(total)
        if FILE in os.environ:
            rows = [{"host": host, **check.as_dict()} for host, checks in self._checks.items() for check in checks]
            Path(os.environ[FILE]).write_text(json.dumps({"checks": rows}), "utf-8")
        # A command may run another playbook with checks of its own.
        self._checks = {}

    def _say_closing(self) -> None:
        """Print the last lines of every box, or write them to CLOSING_FILE for a command that prints them later."""
        has_hosts = len(self._closing) > 1
        texts = [f"\n{host}\n{text}" if has_hosts else f"\n{text}" for host, text in self._closing.items()]
        if file := os.environ.get(CLOSING_FILE):
            with Path(file).open("a", encoding="utf-8") as stream:
                stream.writelines(f"{text}\n" for text in texts)
        else:
            for text in texts:
                self._display.display(text)
        self._closing = {}

    def _print_problems(self, result: Any) -> None:
        for problem in result._result.get("problems") or []:
            self._display.display("")
            for key in ("where", "found", "needed", "do", "code"):
                if problem.get(key):
                    self._display.display(f"{key}: {printable_lines(with_verbs(str(problem[key])))}", color="red")

    def _keep_verdict(self, result: Any) -> None:
        if text := result._result.get("drafthouse_verdict"):
            self._verdicts.append(str(text))
        if text := result._result.get("drafthouse_closing"):
            self._closing[result._host.get_name()] = str(text)

    def _watch(self, task: Any) -> None:
        """Print signs of life of this task from now on, instead of the one before; None: of no task."""
        if self._ticker:
            self._ticker.end()
        self._ticker = _Ticker(task.get_name().strip()) if task and task.action not in _SHOW_PROGRESS else None


def _fate(variables: dict[str, Any]) -> str:
    """State of a rented box at vast.ai, as words."""
    try:
        key = key_of_environment(os.environ, Path.home(), variables.get("drafthouse_vast_key_env") or "VAST_API_KEY")
        client = VastClient(key, variables.get("drafthouse_vast_url") or DEFAULT_URL)
    except DrafthouseError as error:
        return f"vast.ai could not be asked ({error.problems[0].found})"
    return instance_state(client, int(variables["drafthouse_instance"]))


class _Ticker:
    """A thread that prints every 7 seconds that a task still runs.

    It prints by os.write, because a forked worker could inherit a locked Python stream.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._since = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            seconds = time.monotonic() - self._since
            os.write(1, f"  ... {self._name}: {seconds:.0f} s\n".encode())
