"""Lay the prompts of a run down on the box, as the file that its resolved profile names."""

from __future__ import annotations

from ..module_utils.core.errors import one_problem
from ..module_utils.profiles.workspace import resolved_profile
from ..module_utils.prompts.suite_file import suites_file, suites_text
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.suites`: ``resolved`` is the profile with its run. Returns what `drafthouse.core.laid_out` says.

    The prompts are read anew here: in a fact they would be in every task of the run.
    """

    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """Put the file there, and nothing where it is there already."""
        resolved = self._task.args["resolved"]
        path, site = str(resolved["suites_file"]), resolved["site"]
        suites = resolved_profile(resolved["profile"], site, resolved["overrides"])["suites"]
        if suites_file(site["home"], suites) != path:
            found, needed = "prompts that changed since this run began", "the same prompts during a run"
            raise one_problem("prompts-changed", found, needed, "run it again, and edit suites only between runs", path)
        entries = [
            {"path": path.rpartition("/")[0], "mode": "0700"},
            {"path": path, "mode": "0600", "content": suites_text(suites)},
        ]
        answer: Answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": entries}, task_vars=variables
        )
        # 250 KB of prompts are no difference that anybody reads, nor arguments, which -vvv shows.
        for shown in ("diff", "invocation"):
            answer.pop(shown, None)
        return answer
