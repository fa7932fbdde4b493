"""Write the prompts of a run to the box, as the file that its resolved profile names."""

from __future__ import annotations

from ..module_utils.core.errors import one_problem
from ..module_utils.profiles.workspace import resolved_profile
from ..module_utils.prompts.suite_file import suites_file, suites_text
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.suites`: ``resolved`` is the profile with its run. Returns the result of `laid_out`.

    The prompts are read again here: in a fact they would be passed to every task of the run.
    """

    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """Result of writing the file. Raises DrafthouseError if the prompts have changed during the run."""
        resolved = self._task.args["resolved"]
        path = str(resolved["suites_file"])
        site = resolved["site"]
        suites = resolved_profile(resolved["profile"], site, resolved["overrides"])["suites"]
        if suites_file(site["home"], suites) != path:
            found, needed = "prompts that changed since this run began", "the same prompts during a run"
            raise one_problem("prompts-changed", found, needed, "run it again, and edit suites only between runs", path)
        entries = [
            {"path": path.rpartition("/")[0], "mode": "0700"},
            {"path": path, "mode": "0600", "content": suites_text(suites)},
        ]
        answer = self.run_module("drafthouse.core.laid_out", {"entries": entries}, variables)
        # Nobody reads 250 KB of prompts, neither as a diff nor as the arguments that -vvv shows.
        for shown in ("diff", "invocation"):
            answer.pop(shown, None)
        return answer
