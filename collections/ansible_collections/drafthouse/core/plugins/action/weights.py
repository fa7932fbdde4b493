"""Put the weights in place and show how far they are (the module of the same name does the work).

Two arguments more than the module's: ``background`` starts what needs no engine's environment and does not wait for
it; what it returns as ``job`` is handed to a later task, which sees it through before it does its own work.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.pins import Pins, hub_key, pins_file, remember
from ..module_utils.profiles.recipe_versions import NEEDS_ENGINE
from ..module_utils.profiles.resolved_types import WeightItem
from ..plugin_utils.following import FollowingAction
from ..plugin_utils.words import Answer, Arguments, TaskVars


class ActionModule(FollowingAction):
    """`drafthouse.core.weights`."""

    module = "drafthouse.core.weights"
    looks_first = True

    def answer(self, variables: TaskVars) -> Answer:
        """Start the fetch, or end one that was started and put everything in place."""
        arguments, begins, job = self.take_own()
        if begins:
            return self.begin({**arguments, "items": without_engine(arguments["items"])}, variables)
        early = self.follow(job, variables) if job else {}
        # A box that was started again meanwhile has lost its job: what it fetched is there, and the rest comes now.
        if early.get("failed") and not early.get("lost"):
            return early
        checking = self._task.check_mode
        done = together(early, super().answer(variables))
        return done if checking or done.get("failed") else self._pinned(done, arguments, variables)

    def _pinned(self, done: dict[str, Any], arguments: Arguments, variables: TaskVars) -> dict[str, Any]:
        """Write down what was pinned by this run, and say so in the fact that the later phases read."""
        commits = {placed["id"]: placed["commit"] for placed in done.get("placed") or [] if placed.get("commit")}
        moving = [
            item
            for item in arguments["items"]
            if item["source"] == "hub" and item["id"] in commits and item["details"]["revision"] != commits[item["id"]]
        ]
        new = {hub_key(item["details"]["repo"], item["details"]["revision"]): commits[item["id"]] for item in moving}
        remember(pins_file(), Pins(hub=new), boolean(arguments.get("repin") or False))
        if moving and (fact := variables.get("drafthouse_profile")):
            of = {item["id"] for item in moving}
            weights = [
                {**item, "pinned": commits[item["id"]]} if item["id"] in of else item for item in fact["weights"]
            ]
            done = {**done, "ansible_facts": {"drafthouse_profile": {**fact, "weights": weights}}}
        return done


def without_engine(items: list[WeightItem]) -> list[WeightItem]:
    """The items that can be put in place, and be verified, before there is an engine's environment."""
    chosen: dict[str, WeightItem] = {}
    for item in items:
        details = item["details"]
        waits = item["source"] == "derived" and (details["recipe"] in NEEDS_ENGINE or details["from"] not in chosen)
        if item["source"] != "path" and not waits:
            chosen[item["id"]] = item
    return list(chosen.values())


def together(early: dict[str, Any], late: dict[str, Any]) -> dict[str, Any]:
    """The result of both parts of a fetch: ``late`` has looked at all that ``early`` has placed."""
    if early.get("failed") or not early or late.get("failed"):
        return late
    before = {placed["id"]: placed for placed in early["placed"] if placed["changed"]}
    placed = [one if one["changed"] else before.get(one["id"], one) for one in late["placed"]]
    notes = list(dict.fromkeys([*early["notes"], *late["notes"]]))
    return {**late, "changed": early["changed"] or late["changed"], "placed": placed, "notes": notes}
