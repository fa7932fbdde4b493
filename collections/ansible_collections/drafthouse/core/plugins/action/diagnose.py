"""Make the doctor's checks of what was read and of what another machine found; the callback prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..module_utils.operate.checks.finding import FAIL, exit_code, summary
from ..module_utils.operate.checks.registry import diagnose
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

if TYPE_CHECKING:
    from ..module_utils.operate.doctor.types import DoctorFacts, Knocked, OutsideFacts, ProblemWords


class ActionModule(Action):
    """`drafthouse.core.diagnose`: ``resolved`` is the profile, ``look`` what `drafthouse.core.doctor` returned.

    ``outside``: {from, why, knocked}, the last what `drafthouse.core.reachable` returned. Nothing is asked here.
    """

    _VALID_ARGS = frozenset({"resolved", "look", "outside", "parts"})
    _NEEDED = ("resolved", "look")

    def answer(self, variables: TaskVars) -> Answer:
        """The checks, what they come to, and the names of those that fail."""
        look, outside = self._task.args["look"], self._task.args.get("outside") or {}
        facts: DoctorFacts = look["facts"].copy()
        facts["outside"] = _outside(outside, facts.get("client", ""))
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
    """What the other machine found; this one's address is the one under which the box sees it."""
    knocked = given.get("knocked") or {}
    found: list[Knocked] = [door.copy() for door in knocked.get("doors") or []]
    if given.get("from") == "localhost":
        for door in found:
            same_family = (":" in client) == (":" in door["source"])
            door["source"] = client if client and same_family else door["source"]
    problem: ProblemWords | None = None
    if knocked and "doors" not in knocked and not knocked.get("skipped"):
        said = str(knocked.get("msg") or "no answer").splitlines()[0]
        problem = {
            "code": "no-outside-view",
            "found": f"{given['from']} could not probe the ports: {said}",
            "needed": "another machine that can probe them",
            "do": "name another one: doctor_from, a host of the inventory or localhost",
        }
    return {"from": given.get("from", ""), "why": given.get("why", ""), "doors": found, "problem": problem}
