"""Render the gateway's files on the controller, and write them to the box."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.addons.gateway import Replica, Settings, definition, files
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.gateway`: its arguments are the fields of `Settings`.

    Returns the result of `laid_out`, and ``definition``, a hash of the files' contents.
    """

    _VALID_ARGS = frozenset(Settings.__dataclass_fields__)
    _NEEDED = ("home", "port", "upstream", "key_file")

    def answer(self, variables: TaskVars) -> Answer:
        """Convert the arguments, which templates turn into strings, render the files, and write those that differ."""
        given = dict(self._task.args)
        for number in ("port", "max_body_mb", "body_timeout_s", "max_requests", "hold_s", "router_port"):
            given[number] = int(given.get(number) or 0)
        given["replica"] = boolean(given.get("replica", False))
        replicas = given.get("replicas") or []
        given["replicas"] = tuple(Replica(**{**replica, "port": int(replica["port"])}) for replica in replicas)
        entries = files(ROOT / "templates", Settings(**given))
        answer = self.run_module("drafthouse.core.laid_out", {"entries": entries}, variables)
        return {**answer, "definition": definition(entries)}
