"""Write a support bundle on the controller, from the texts that the module of the same name gathers on a box."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..module_utils.cloud.vast.local_state import state_folder
from ..module_utils.core.places import WORK
from ..module_utils.core.redact import known_secrets, redactor
from ..module_utils.operate.support_bundle import contents, write
from ..module_utils.operate.support_facts import key_files
from ..module_utils.profiles.resolved_types import Run
from ..module_utils.profiles.workspace import resolved_profile
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.support`: ``resolved``, the doctor's ``checks``, and ``folder`` and ``reports`` here."""

    _VALID_ARGS = frozenset({"resolved", "checks", "folder", "reports"})

    def answer(self, variables: TaskVars) -> Answer:
        """Path of the bundle, and a line about it for the end of the run; in check mode nothing is written."""
        given = self._task.args
        resolved: Run = given["resolved"]
        arguments = {"home": resolved["site"]["home"], "engine_home": resolved["engine"]["home"]}
        answer = self.run_module("drafthouse.core.support", arguments, variables)
        if answer.get("failed") or self._task.check_mode:
            return answer
        host = str(variables.get("inventory_hostname", "box"))
        reports = WORK / str(given.get("reports") or "reports")
        # The plan in the bundle counts the prompts, which the fact does not have.
        suites = resolved_profile(resolved["profile"], resolved["site"], resolved["overrides"])["suites"]
        whole: Run = {**resolved, "suites": suites}
        texts = contents(whole, host, given.get("checks") or [], answer["texts"], reports)
        redact = redactor(known_secrets(os.environ, [*key_files(), *sorted((state_folder() / "keys").glob("*"))]))
        path: Path = write(WORK / str(given["folder"]), host, texts, redact, time.time())
        line = f"support bundle of {host}: {path} ({len(texts)} files; look into it before you hand it on)"
        return {"changed": True, "path": str(path), "drafthouse_verdict": line}
