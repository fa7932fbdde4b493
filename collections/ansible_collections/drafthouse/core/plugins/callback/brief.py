"""A line for each kind of change, for a run that somebody watches who never saw Ansible: `make demo`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: brief
type: stdout
short_description: One line for each name of a task that changed something
description:
  - No headings, no tasks that found everything as it should be, no recap; a name is said once, however often it plays.
  - A task that failed is printed as by drafthouse.core.terminal, and then the recap too.
  - With -v everything is as drafthouse.core.terminal prints it.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

from typing import TYPE_CHECKING, Any

from ansible import constants

from .terminal import CallbackModule as Terminal

if TYPE_CHECKING:
    from ansible.executor.task_result import CallbackTaskResult


class CallbackModule(Terminal):
    """The callback `terminal`, of which only changes and failures are left."""

    CALLBACK_NAME = "drafthouse.core.brief"

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        """Print the task's name if it changed something and was not printed before."""
        if self._display.verbosity:
            super().v2_runner_on_ok(result)
            return
        self._handle_warnings(result.result)
        name = result.task.get_name().strip()
        if result.result.get("changed") and name not in self._printed:
            self._printed.add(name)
            self._display.display(f"changed: {name}", color=constants.COLOR_CHANGED)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        """Print nothing: the task has its line."""
        if self._display.verbosity:
            super().v2_runner_item_on_ok(result)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing: which files a role is made of is nothing that changed."""
        if self._display.verbosity:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the recap where something failed."""
        if self._display.verbosity or stats.failures or stats.dark:
            super().v2_playbook_on_stats(stats)
