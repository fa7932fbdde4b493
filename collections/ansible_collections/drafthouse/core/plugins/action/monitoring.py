"""Render the monitoring's files on the controller, and write those that its programs read to the box."""

from __future__ import annotations

import json
from typing import Any

from ..module_utils.addons.monitoring import Settings, build_files, jobs
from ..module_utils.addons.prometheus_rules import Limits, Pace
from ..module_utils.core.errors import DrafthouseError, Problem, did_you_mean
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.monitoring`: its arguments are the fields of `Settings`, ``pace`` and ``limits`` as mappings.

    Returns the result of `laid_out`, with ``units``, ``programs`` and ``containers`` for the role, ``jobs``, names of
    Prometheus's jobs, and ``prometheus`` and ``grafana``, their addresses ("" without Grafana).
    """

    _VALID_ARGS = frozenset(Settings.__dataclass_fields__)
    _NEEDED = ("home", "process_manager", "box", "key_file", "requested", "binaries")

    def answer(self, variables: TaskVars) -> Answer:
        """Check the settings, render the files, and write those that differ; another task writes the units."""
        # Plain strings in place of Ansible's subclasses, which YAML's writer refuses.
        given = json.loads(json.dumps(dict(self._task.args)))
        given["pace"] = _numbers(Pace, given.get("pace") or {}, "monitoring_pace")
        given["limits"] = _numbers(Limits, given.get("limits") or {}, "monitoring_limits")
        settings = Settings(**given)
        rendered = build_files(ROOT / "templates", settings)
        answer = self.run_module("drafthouse.core.laid_out", {"entries": rendered["entries"]}, variables)
        ports = settings.requested["ports"]
        address = settings.listens_at
        return {
            **answer,
            "units": rendered["units"],
            "programs": rendered["programs"],
            "containers": rendered["containers"],
            "jobs": jobs(settings.requested),
            "prometheus": f"http://{address}:{ports['prometheus']}",
            "grafana": f"http://{address}:{ports['grafana']}" if settings.requested["grafana"] else "",
        }


def _numbers(kind: Any, given: dict[str, Any], where: str) -> Any:
    """`Pace` or `Limits` (the class ``kind``) from the inventory's variable ``where``. Raises DrafthouseError."""
    known = kind.__dataclass_fields__
    problems = []
    values = {}
    for name in given:
        if name not in known:
            needed = f"one of: {', '.join(known)}"
            problems.append(Problem("unknown-key", f"'{name}'", needed, did_you_mean(name, known), where))
    for name, value in given.items():
        if name not in known:
            continue
        number = type(getattr(kind(), name))
        try:
            values[name] = number(value)
        except (TypeError, ValueError):
            problems.append(Problem("wrong-type", f"'{value}'", "a number", "correct it", f"{where}.{name}"))
    if problems:
        raise DrafthouseError(problems)
    return kind(**values)
