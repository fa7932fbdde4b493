"""Gather what the Prometheus of a fleet's front asks: the replicas that the front has, and what each one serves."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ..module_utils.addons.fleet.front import KEPT, kept_replicas
from ..module_utils.addons.fleet_monitoring import fleet_of
from ..module_utils.profiles.workspace import resolved_profile, site_from
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

if TYPE_CHECKING:
    from ..module_utils.profiles.resolved_types import ResolvedProfile


class ActionModule(Action):
    """`drafthouse.core.fleet_targets`: ``home`` is our folder on the front. Returns ``fleet``, {} where it has none."""

    _VALID_ARGS = frozenset({"home"})

    def answer(self, variables: TaskVars) -> Answer:
        """Join what the front has with the profiles of the inventory."""
        path = f"{self._task.args['home']}/fleet/{KEPT}"
        read = self._execute_module(module_name="ansible.builtin.slurp", module_args={"src": path}, task_vars=variables)
        kept = kept_replicas(base64.b64decode(read.get("content") or "").decode("utf-8", "replace"))
        profiles = {name: _resolved(variables["hostvars"][name]) for name in kept if name in variables["hostvars"]}
        return {"changed": False, "fleet": fleet_of(kept, profiles) if profiles else {}}


def _resolved(own: TaskVars) -> ResolvedProfile:
    """Return the profile of a box: this run's, or of one that is not in it what the inventory says."""
    if resolved := own.get("drafthouse_profile"):
        found: ResolvedProfile = resolved
        return found
    site = site_from({name: own[name] for name in own if str(name).startswith("drafthouse_")})
    version = own.get("engine_version")
    overrides = {**(own.get("overrides") or {}), **({"engine_version": str(version)} if version else {})}
    return resolved_profile(str(own["profile"]), site, overrides)
