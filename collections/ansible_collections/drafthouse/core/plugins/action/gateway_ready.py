"""Wait for the gateway with the module of the same name, copy its certificate here, and say how to reach it."""

from __future__ import annotations

from pathlib import Path

from ..module_utils.addons.gateway import Reached, reached_text
from ..module_utils.addons.gateway_door import NAME
from ..module_utils.cloud.vast.local_state import state_folder
from ..module_utils.core.files import replace_file
from ..module_utils.core.format import name_of
from ..plugin_utils.action import Action
from ..plugin_utils.key_command import key_command_of
from ..plugin_utils.words import Answer, TaskVars

# Arguments for the lines at the end of the run; the module does not have them.
_FOR_THE_LINES = ("outside_address", "outside_port", "model", "called")


class ActionModule(Action):
    """`drafthouse.core.gateway_ready`: the arguments of the module, and some for the lines at the end of the run.

    These are ``outside_address``, ``outside_port``, ``model`` and ``called``, the gateway's name. The callback prints
    what is returned as ``drafthouse_verdict``.
    """

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, with the lines for the end of the run."""
        given = {key: value for key, value in self._task.args.items() if key not in _FOR_THE_LINES}
        answer = self.run_module(self._task.action, given, variables)
        if answer.get("failed") or self._task.check_mode:
            return answer
        host = str(variables.get("inventory_hostname", ""))
        called = str(self._task.args.get("called", NAME))
        trust = ""
        changed = False
        if answer["certificate"]:
            trust, changed = self._keep(host if called == NAME else f"{called}-{host}", answer["certificate"])
        reached = Reached(
            host=str(self._task.args["outside_address"]),
            port=int(self._task.args["outside_port"]),
            model=str(self._task.args["model"]),
            key_command=key_command_of(self._connection, str(given["key_file"]), host),
            trust=trust,
            fingerprint=answer["fingerprint"],
        )
        return {**answer, "changed": changed, "drafthouse_verdict": reached_text(reached, host, called)}

    def _keep(self, host: str, pem: str) -> tuple[str, bool]:
        """Keep a certificate, which is public, on the controller. The result is its path, and whether it changed."""
        file: Path = state_folder() / "gateway" / f"{name_of(host)}.pem"
        if file.is_file() and file.read_text("utf-8") == pem:
            return str(file), False
        file.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(file, pem, None)
        return str(file), True
