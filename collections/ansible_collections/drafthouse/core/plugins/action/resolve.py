"""Resolve the profile for a box: the first task of every play, and the only data that passes between phases.

Sets the fact `drafthouse`: the resolved profile with its rendered files, the box's facts, the prompts'
suites, and the key under which results of this profile on this box are kept.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils import monitoring
from ..module_utils.deadline import deadline_of
from ..module_utils.gateway import script_of
from ..module_utils.house import resolved_profile, site_from
from ..module_utils.problems import HouseError, Problem
from ..module_utils.releases import identity
from ..module_utils.rented_vm import site_of_vm
from ..module_utils.resolve import measured_key
from ..plugin_utils.words import failure

# What makes two boxes different for a measurement; the free memory of the moment does not.
_IDENTITY = ("hostname", "machine", "cpu", "cores", "memory_total", "gpus")


class ActionModule(ActionBase):
    """`drafthouse.core.resolve`: reads the variables `profile`, `engine_version`, `overrides` and the site's."""

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"again"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the fact, or every problem of the profile."""
        super().run(tmp, task_vars)
        if "drafthouse" in (task_vars or {}) and not self._task.args.get("again"):
            # Once a run: a profile that is edited meanwhile is the next run's. `again` is for a box that has changed.
            return {"changed": False}
        variables = {
            key: self._templar.template(value)
            for key, value in (task_vars or {}).items()
            if key.startswith("drafthouse_") or key in ("profile", "overrides", "engine_version")
        }
        try:
            resolved = self._resolve(variables)
        except HouseError as error:
            return failure(error)
        box = self._look_at_the_box(resolved, task_vars or {})
        if box.get("failed"):
            return box
        local = (task_vars or {}).get("ansible_connection") == "local"
        vm = site_of_vm(resolved, box["box"], variables) if not local else None
        if vm:
            try:
                resolved = resolved_profile(resolved["profile"], vm, self._overrides(variables))
            except HouseError as error:
                return failure(error)
        key = measured_key(resolved, {part: box["box"][part] for part in _IDENTITY})
        fact = {**resolved, "box": box["box"], "key": key}
        if served := box["box"].get("served"):
            # Whether this very profile, with these very files, is what serves already.
            served["same"] = served["identity"] == identity(resolved)
        fact["rented_vm"] = bool(vm)
        fact["rented"] = box["box"]["first_process"] if fact["site"]["box_kind"] == "rental" and not local else None
        fact["deadline"] = _deadline(variables, fact["rented"])
        fact["result_dir"] = f"{resolved['site']['home']}/results/{resolved['profile']}/{key}"
        return {"changed": False, "ansible_facts": {"drafthouse": fact}}

    def _resolve(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("profile")
        if not name:
            raise HouseError(
                Problem("no profile", "the name of one", "add -e profile=NAME (make profiles shows them all)")
            )
        return resolved_profile(str(name), site_from(variables), self._overrides(variables))

    def _overrides(self, variables: dict[str, Any]) -> dict[str, Any]:
        overrides = dict(variables.get("overrides") or {})
        if variables.get("engine_version"):
            overrides["engine_version"] = str(variables["engine_version"])
        return overrides

    def _look_at_the_box(self, resolved: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        site = resolved["site"]
        ours = [
            script_of(site["home"]),
            monitoring.script_of(site["home"]),
            f"{site['home']}/watchdog/serve.sh",
            resolved["engine"]["home"],
        ]
        arguments = {
            "paths": [site["home"], site["models_dir"]],
            "present": [*(item["path"] for item in resolved["weights"]), *ours],
            "ports": resolved["ports"],
            "supervisor_pidfile": f"{site['home']}/supervisor/supervisord.pid",
            "home": site["home"],
        }
        result: dict[str, Any] = self._execute_module(
            module_name="drafthouse.core.box_facts", module_args=arguments, task_vars=task_vars
        )
        return result


def _deadline(variables: dict[str, Any], rented: dict[str, Any] | None) -> int | None:
    """Return when a rented box shall end, by the inventory, its label, or what it was told when it was rented."""
    given = variables.get("drafthouse_deadline") or deadline_of(variables.get("drafthouse_label"))
    return int(given) if given else (rented or {}).get("deadline")
