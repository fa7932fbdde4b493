"""Ansible's default output, but with one copy of our problems: the lines of the callback `house`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: terminal
type: stdout
short_description: The default output, without a second and third copy of our problems
description:
  - A task that failed with found/needed/do is one line here; the callback drafthouse.core.house prints the rest.
  - With -v Ansible's own error with its origin, and the result as YAML, are printed too.
  - Everything else is the output of ansible.builtin.default.
requirements:
  - drafthouse.core.house among the enabled callbacks; without it the output is that of ansible.builtin.default
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

# Here, because this is the first of our plugins that a run loads.
from ..plugin_utils import start_up as _start_up  # noqa: F401

if TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult

_PROBLEMS_ARE_PRINTED_BY = "drafthouse.core.house"


class CallbackModule(Default):
    """The default callback, except for results with `problems`."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "drafthouse.core.terminal"

    def __init__(self) -> None:
        super().__init__()
        self._new_play: Any = None  # whose heading is not printed yet

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Delay the play's heading until its first task that is shown: a play of skipped tasks gets none."""
        self._play = play
        self._new_play = play

    def _print_task_banner(self, task: Any) -> None:
        if self._new_play is not None:
            super().v2_playbook_on_play_start(self._new_play)
            self._new_play = None
        super()._print_task_banner(task)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Print one line for a failed task with problems of ours, and the default output for others."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._say(result, f"fatal: [{self.host_label(result)}]: FAILED!")
        if ignore_errors:
            self._display.display("...ignoring", color=constants.COLOR_SKIP)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Print the same for an unreachable box."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_on_unreachable(result)
            return
        self._say(result, f"fatal: [{self.host_label(result)}]: UNREACHABLE!")

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Print the same for a failed item of a loop."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_item_on_failed(result)
            return
        self._say(result, f"failed: [{self.host_label(result)}] (item={self._get_item_label(result.result)})")

    def _is_said_elsewhere(self, result: CallbackTaskResult) -> bool:
        """True if the callback `house` prints the problems of this result, and the default output is not needed."""
        data = result.result
        # Not the result of a loop, which lists those of its items: these had their lines.
        has_problems = bool(data.get("problems")) and "results" not in data
        return has_problems and not self._display.verbosity and _PROBLEMS_ARE_PRINTED_BY in constants.CALLBACKS_ENABLED

    def _say(self, result: CallbackTaskResult, line: str) -> None:
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._handle_warnings(result.result)
        to_stderr = self.get_option("display_failed_stderr")
        self._display.display(line, color=constants.COLOR_ERROR, stderr=to_stderr)
