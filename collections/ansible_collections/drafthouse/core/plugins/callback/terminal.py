"""Ansible's default output, in which a refusal is said once: by the lines of the callback `house`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: terminal
type: stdout
short_description: The default output, without a second and third copy of our refusals
description:
  - A task that failed with found/needed/do is one line here, and the callback drafthouse.core.house prints the rest.
  - Ansible's own error with its origin, and the result as YAML, show such a failure with -v.
  - Everything else is as ansible.builtin.default prints it.
requirements:
  - drafthouse.core.house among the enabled callbacks; without it everything is as ansible.builtin.default prints it
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

# The first plugin of ours that a run loads.
from ..plugin_utils import start_up as _start_up  # noqa: F401

if TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult

_PROBLEMS_ARE_PRINTED_BY = "drafthouse.core.house"


class CallbackModule(Default):
    """The default callback but for results that carry `problems`."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "drafthouse.core.terminal"

    def __init__(self) -> None:
        super().__init__()
        self._unsaid: Any = None

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Keep the play's line for its first task that is shown: one whose tasks are all skipped is none."""
        self._play = self._unsaid = play

    def _print_task_banner(self, task: Any) -> None:
        play, self._unsaid = self._unsaid, None
        if play is not None:
            super().v2_playbook_on_play_start(play)
        super()._print_task_banner(task)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        """Print the line of a failed task; only what is no refusal of ours is followed by more."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_on_failed(result, ignore_errors)
            return
        self._say(result, f"fatal: [{self.host_label(result)}]: FAILED!")
        if ignore_errors:
            self._display.display("...ignoring", color=constants.COLOR_SKIP)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        """Print the line of a box that is away likewise."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_on_unreachable(result)
            return
        self._say(result, f"fatal: [{self.host_label(result)}]: UNREACHABLE!")

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        """Print the line of a failed item of a loop likewise."""
        if not self._is_said_elsewhere(result):
            super().v2_runner_item_on_failed(result)
            return
        self._say(result, f"failed: [{self.host_label(result)}] (item={self._get_item_label(result.result)})")

    def _is_said_elsewhere(self, result: CallbackTaskResult) -> bool:
        data = result.result
        # A loop's result lists those of its items, and they were said one by one.
        ours = bool(data.get("problems")) and "results" not in data
        return ours and not self._display.verbosity and _PROBLEMS_ARE_PRINTED_BY in constants.CALLBACKS_ENABLED

    def _say(self, result: CallbackTaskResult, line: str) -> None:
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._handle_warnings(result.result)
        in_red = constants.COLOR_ERROR
        self._display.display(line, color=in_red, stderr=self.get_option("display_failed_stderr"))
