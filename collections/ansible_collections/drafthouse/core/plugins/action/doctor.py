"""Read the facts of a box for the doctor with the module of the same name, and list the ports to probe from outside."""

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
    """`drafthouse.core.doctor`: the arguments of the module, with ``resolved`` in place of ``asked``.

    Returns ``facts`` for `drafthouse.core.diagnose`, and ``doors`` for `drafthouse.core.reachable`.
    """

    def answer(self, variables: TaskVars) -> Answer:
        """The facts and the ports. The facts have the controller's time before and after, to judge the box's clock."""
        given = dict(self._task.args)
        resolved = given.pop("resolved")
        check_parts(given.get("parts") or [])
        asked = order_of(resolved, load_suite(SUITE, ROOT / "benchmarks"))
        began = time.time()
        answer = self.run_module("drafthouse.core.doctor", {**given, "asked": asked}, variables)
        if answer.get("failed"):
            return answer
        facts = dict(answer["facts"])
        is_local = self._connection.transport == "local"
        if not is_local:
            facts["clock"] = {**facts["clock"], "controller": [began, time.time()]}
        # Connections without a network (docker, nsenter) do not have this option.
        host = self._connection.get_option("host") if self._connection.has_option("host") else None
        address = "127.0.0.1" if is_local else str(host or self._play_context.remote_addr)
        addresses = [address, *facts.get("addresses", [])]
        return {"changed": False, "facts": facts, "doors": doors(resolved, addresses, resolved.get("rented"))}
