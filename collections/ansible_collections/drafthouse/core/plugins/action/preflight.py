"""Check whether the box can run the resolved profile, from the box's facts."""

from __future__ import annotations

from collections.abc import Iterable

from ansible.utils.display import Display

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.host.box_types import BoxFacts
from ..module_utils.operate.checks.registry import preflight_problems
from ..module_utils.profiles.resolved_types import RemoteCode
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

_display = Display()


def tell_remote_code(rows: Iterable[RemoteCode], hostname: str) -> None:
    """Print which repositories' Python code the engine will run, and their commits (trust_remote_code)."""
    for row in rows:
        whose = f"{row['repo']} at {row['commit']}" if row["commit"] else str(row["repo"])
        _display.display(f"  {hostname}: trust_remote_code: the engine will run the code of {whose}")


class ActionModule(Action):
    """`drafthouse.core.preflight`: ``resolved`` is the profile with its box.

    ``after_host``: only check what the host phase should have put right.
    """

    _VALID_ARGS = frozenset({"resolved", "after_host"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """A failure with every problem of the box, if there are any."""
        resolved = self._task.args["resolved"]
        box: BoxFacts = resolved["box"]
        tell_remote_code(resolved["remote_code"], box["hostname"])
        problems = preflight_problems(resolved, box, prepared=bool(self._task.args.get("after_host")))
        return failure(DrafthouseError(problems)) if problems else {"changed": False}
