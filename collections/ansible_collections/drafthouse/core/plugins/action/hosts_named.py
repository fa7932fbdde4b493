"""Fail where an inventory names no host: Ansible alone would do nothing and exit 0."""

from __future__ import annotations

from ..module_utils.core.errors import one_problem
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure


class ActionModule(Action):
    """`drafthouse.core.hosts_named`: no arguments."""

    def answer(self, variables: TaskVars) -> Answer:
        """Return a failure unless there is a host to work on."""
        if variables.get("groups", {}).get("all"):
            return {"changed": False}
        sources = ", ".join(str(source) for source in variables.get("ansible_inventory_sources") or ["(none)"])
        rent = "rent one (make rent), " if "vastai" in sources else ""
        return failure(
            one_problem(
                "no-host",
                "an inventory without hosts",
                "at least one box to work on",
                f"{rent}add it to the inventory's hosts.yml (which has an example), or choose another with -i",
                sources,
            )
        )
