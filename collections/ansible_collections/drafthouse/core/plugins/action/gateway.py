"""Render the gateway's files on the controller, and lay them out on the box."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.addons.gateway import Replica, Settings, definition, files
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.gateway`: its arguments are the fields of `Settings`; it returns what `laid_out` says."""

    _VALID_ARGS = frozenset(Settings.__dataclass_fields__)
    _NEEDED = ("home", "port", "upstream", "key_file")

    def answer(self, variables: TaskVars) -> Answer:
        """Check the settings, render, and put what differs on the box."""
        given = dict(self._task.args)
        for number in ("port", "max_body_mb", "body_timeout_s", "max_requests", "hold_s", "router_port"):
            given[number] = int(given.get(number) or 0)
        given["replica"] = boolean(given.get("replica", False))
        given["replicas"] = tuple(Replica(**{**one, "port": int(one["port"])}) for one in given.get("replicas") or [])
        entries = files(ROOT / "templates", Settings(**given))
        answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": entries}, task_vars=variables
        )
        return {**answer, "definition": definition(entries)}
