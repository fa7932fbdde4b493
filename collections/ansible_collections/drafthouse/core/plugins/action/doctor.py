"""Look at a box for the doctor (the module does the reading), and find out where another machine shall knock."""

from __future__ import annotations

import time

from ..module_utils.operate.checks.ports import doors
from ..module_utils.operate.checks.registry import check_parts
from ..module_utils.operate.doctor.expected import order_of
from ..module_utils.profiles.workspace import ROOT
from ..module_utils.prompts.loader import load_suite
from ..module_utils.tuning.prompt_split import SUITE
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.doctor`: the module's arguments, and ``resolved`` in place of ``asked``.

    Returns ``facts`` for `drafthouse.core.diagnose`, and ``doors`` for `drafthouse.core.reachable`.
    """

    def answer(self, variables: TaskVars) -> Answer:
        """The facts, with the time that passed here while they were read."""
        given = dict(self._task.args)
        resolved = given.pop("resolved")
        check_parts(given.get("parts") or [])
        asked = order_of(resolved, load_suite(SUITE, ROOT / "benchmarks"))
        began = time.time()
        answer = self._execute_module(
            module_name="drafthouse.core.doctor", module_args={**given, "asked": asked}, task_vars=variables
        )
        if answer.get("failed"):
            return dict(answer)
        facts = dict(answer["facts"])
        local = self._connection.transport == "local"
        if not local:
            facts["clock"] = {**facts["clock"], "controller": [began, time.time()]}
        # A connection that is no network's (docker, nsenter) has no such option.
        host = self._connection.get_option("host") if self._connection.has_option("host") else None
        address = "127.0.0.1" if local else str(host or self._play_context.remote_addr)
        behind = doors(resolved, [address, *facts.get("addresses", [])], resolved.get("rented"))
        return {"changed": False, "facts": facts, "doors": behind}
