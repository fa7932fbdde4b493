"""Judge the doctor's checks from a box's facts and another machine's port probes; the callback prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..module_utils.operate.checks.finding import FAIL, exit_code, summary
from ..module_utils.operate.checks.registry import diagnose
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

if TYPE_CHECKING:
    from ..module_utils.operate.doctor.types import DoctorFacts, Knocked, OutsideFacts, ProblemWords


class ActionModule(Action):
    """`drafthouse.core.diagnose`: ``resolved`` is the profile, ``look`` the result of `drafthouse.core.doctor`.

    ``outside``: {from, why, knocked}; ``knocked`` is the result of `drafthouse.core.reachable`.
    """

    _VALID_ARGS = frozenset({"resolved", "look", "outside", "parts"})
    _NEEDED = ("resolved", "look")

    def answer(self, variables: TaskVars) -> Answer:
        """The checks, their summary and exit code, and the names of those that fail."""
        facts: DoctorFacts = self._task.args["look"]["facts"].copy()
        facts["outside"] = _outside(self._task.args.get("outside") or {}, facts.get("client", ""))
        checks = diagnose(self._task.args["resolved"], facts, self._task.args.get("parts") or [])
        lines = [check.as_dict() for check in checks]
        return {
            "changed": False,
            "checks": lines,
            "exit_code": exit_code(checks),
            "summary": summary(checks),
            "fails": [check.name for check in checks if check.status == FAIL],
            "drafthouse_doctor": lines,
        }


def _outside(given: dict[str, Any], client: str) -> OutsideFacts:
    """Port probes of another machine, from the argument ``outside``.

    ``client``: the address by which the box sees the controller, "" if unknown. Behind NAT it differs from the source
    address that the controller knows of its own probes, so it replaces that.
    """
    knocked = given.get("knocked") or {}
    doors: list[Knocked] = [door.copy() for door in knocked.get("doors") or []]
    if given.get("from") == "localhost" and client:
        for door in doors:
            is_same_family = (":" in client) == (":" in door["source"])
            if is_same_family:
                door["source"] = client
    problem: ProblemWords | None = None
    if knocked and "doors" not in knocked and not knocked.get("skipped"):
        reason = str(knocked.get("msg") or "no answer").splitlines()[0]
        problem = {
            "code": "no-outside-view",
            "found": f"{given['from']} could not probe the ports: {reason}",
            "needed": "another machine that can probe them",
            "do": "name another one: doctor_from, a host of the inventory or localhost",
        }
    return {"from": given.get("from", ""), "why": given.get("why", ""), "doors": doors, "problem": problem}
