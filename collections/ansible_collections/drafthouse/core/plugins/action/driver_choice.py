"""Judge a box's NVIDIA driver: before anything is touched, before packages, after them, and when it is to go.

``choose`` looks at the box and returns the plan; ``pick`` takes the plan's packages out of what apt has; ``hold`` looks
again and names the packages that nothing holds; ``settle`` says whether a reboot is left, or what is wrong;
``remove`` names what goes with a driver of ours.
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
    """`drafthouse.core.driver_choice`: ``step``, ``wishes``, ``look`` (where to look), ``plan``, ``versions``."""

    _VALID_ARGS = frozenset({"step", "wishes", "look", "plan", "versions", "rebooted"})
    _NEEDED = ("step",)

    def answer(self, variables: TaskVars) -> Answer:
        """The plan, the packages or what is left; or every problem."""
        given = self._task.args
        if given["step"] == "pick":
            self._need("plan", "versions")
            picked = pick(given["plan"], given["versions"], check=self._task.check_mode)
            return {"changed": False, "packages": picked}
        seen: Answer = self._execute_module(
            module_name="drafthouse.core.driver_facts", module_args=given.get("look", {}), task_vars=variables
        )
        if seen.get("failed"):
            return seen
        facts, wishes = seen["driver"], _wishes(given.get("wishes", {}))
        if given["step"] == "hold":
            return {"changed": False, "hold": to_hold(facts)}
        if given["step"] == "remove":
            return {"changed": False, "remove": leaving(facts, wishes)}
        if given["step"] == "settle":
            left = settle(facts, wishes, boolean(given.get("rebooted", False)))
            return {"changed": False, "left": left}
        plan = choose(facts, wishes, load_gpus(ROOT)).as_dict()
        # A run that was killed after the packages and before their hold is finished by the next one.
        plan["hold"] = to_hold(facts) if facts["managed"] and plan["action"] != "install" else []
        plan["ours"] = facts["managed"] or plan["action"] == "install"
        for warning in plan["warnings"]:
            self._display.warning(warning)
        return {"changed": False, "plan": plan}


def _wishes(words: dict[str, Any]) -> Wishes:
    """The role's variables with the types that they have there: templates may make texts of them."""
    plain = {**asdict(Wishes()), **words}
    plain["branch"] = int(plain["branch"])
    for name in ("compute_only", "force"):
        plain[name] = boolean(plain[name])
    plain["open"] = str(plain["open"]).lower()
    return Wishes.of(plain)
