"""Render the monitoring's files on the controller, and lay out on the box what its programs read."""

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

    Returns what `laid_out` says, and ``units``, ``programs``, ``containers``, ``jobs``, ``prometheus``, ``grafana``.
    """

    _VALID_ARGS = frozenset(Settings.__dataclass_fields__)
    _NEEDED = ("home", "process_manager", "box", "key_file", "requested", "binaries")

    def answer(self, variables: TaskVars) -> Answer:
        """Check the settings, render, and put what differs on the box; units are another task's."""
        # Ansible's own kinds of words, which a writer of YAML refuses, become plain ones.
        given = json.loads(json.dumps(dict(self._task.args)))
        given["pace"] = _numbers(Pace, given.get("pace") or {}, "monitoring_pace")
        given["limits"] = _numbers(Limits, given.get("limits") or {}, "monitoring_limits")
        settings = Settings(**given)
        made = build_files(ROOT / "templates", settings)
        answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": made["entries"]}, task_vars=variables
        )
        ports, at = settings.requested["ports"], settings.listens_at
        return {
            **answer,
            **{key: made[key] for key in ("units", "programs", "containers")},
            "jobs": jobs(settings.requested),
            "prometheus": f"http://{at}:{ports['prometheus']}",
            "grafana": f"http://{at}:{ports['grafana']}" if settings.requested["grafana"] else "",
        }


def _numbers(kind: Any, given: dict[str, Any], where: str) -> Any:
    """Make a `Pace` or `Limits` of what an inventory says. Raises DrafthouseError."""
    known = kind.__dataclass_fields__
    problems = [
        Problem("unknown-key", f"'{name}'", f"one of: {', '.join(known)}", did_you_mean(name, known), where)
        for name in given
        if name not in known
    ]
    values = {}
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
