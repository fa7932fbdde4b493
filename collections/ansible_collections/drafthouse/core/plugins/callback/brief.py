"""Output of one line for each kind of change, for viewers who do not know Ansible (`make demo`)."""

from __future__ import annotations

DOCUMENTATION = r"""
name: brief
type: stdout
short_description: One line for each name of a task that changed something
description:
  - No headings, no unchanged tasks and no recap. A name is printed once, however often its task runs.
  - After a failed task, which is printed as by drafthouse.core.terminal, the recap is printed too.
  - With -v the output is that of drafthouse.core.terminal.
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
    """The callback `terminal`, reduced to changes and failures."""

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
        """Print nothing: the task has a line."""
        if self._display.verbosity:
            super().v2_runner_item_on_ok(result)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Print nothing: an included file of tasks is no change."""
        if self._display.verbosity:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print the recap if something failed."""
        if self._display.verbosity or stats.failures or stats.dark:
            super().v2_playbook_on_stats(stats)
