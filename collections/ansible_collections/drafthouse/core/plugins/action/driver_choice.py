"""Judge a box's NVIDIA driver, in the steps of the role `nvidia_driver`.

- ``choose`` reads the box's facts and returns the plan.
- ``pick`` chooses exact versions for the plan's packages from those that apt offers.
- ``hold`` reads the facts again and names the packages that are not held yet.
- ``settle`` tells whether a reboot is needed, and fails if the driver does not work.
- ``remove`` names the packages that go when a driver that we installed is removed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.host.driver.packages import leaving, pick, to_hold
from ..module_utils.host.driver.plan import Wishes
from ..module_utils.host.driver.policy import choose, settle
from ..module_utils.profiles.catalog import load_gpus
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.driver_choice`; ``look`` has the arguments of `drafthouse.core.driver_facts`."""

    _VALID_ARGS = frozenset({"step", "wishes", "look", "plan", "versions", "rebooted"})
    _NEEDED = ("step",)

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the step, under the key that its task reads. Raises DrafthouseError with every problem."""
        given = self._task.args
        if given["step"] == "pick":
            self._need("plan", "versions")
            picked = pick(given["plan"], given["versions"], check=self._task.check_mode)
            return {"changed": False, "packages": picked}
        read = self.run_module("drafthouse.core.driver_facts", given.get("look", {}), variables)
        if read.get("failed"):
            return read
        facts = read["driver"]
        wishes = _wishes(given.get("wishes", {}))
        if given["step"] == "hold":
            return {"changed": False, "hold": to_hold(facts)}
        if given["step"] == "remove":
            return {"changed": False, "remove": leaving(facts, wishes)}
        if given["step"] == "settle":
            left = settle(facts, wishes, boolean(given.get("rebooted", False)))
            return {"changed": False, "left": left}
        plan = choose(facts, wishes, load_gpus(ROOT)).as_dict()
        # An earlier run may have been killed between the installation of the packages and their hold.
        plan["hold"] = to_hold(facts) if facts["managed"] and plan["action"] != "install" else []
        plan["ours"] = facts["managed"] or plan["action"] == "install"
        for warning in plan["warnings"]:
            self._display.warning(warning)
        return {"changed": False, "plan": plan}


def _wishes(given: dict[str, Any]) -> Wishes:
    """Wishes from the role's variables, which templates may have turned into strings; defaults for missing ones."""
    plain = {**asdict(Wishes()), **given}
    plain["branch"] = int(plain["branch"])
    for name in ("compute_only", "force"):
        plain[name] = boolean(plain[name])
    plain["open"] = str(plain["open"]).lower()
    return Wishes.of(plain)
