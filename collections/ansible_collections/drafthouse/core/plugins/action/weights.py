"""Download or make the weights with the module of the same name, and show the progress.

It has two more arguments than the module. With ``background`` the task starts the module for the weights that do not
need the engine's environment, and returns a job; a later task with this ``job`` waits for its end, then does the rest.
"""

from __future__ import annotations

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
        """Result for all weights, or the ``job`` if it runs in the background."""
        arguments, begins, job = self.take_own()
        if begins:
            return self.begin({**arguments, "items": without_engine(arguments["items"])}, variables)
        early = self.follow(job, variables) if job else {}
        # A job is lost if the box was restarted meanwhile; what it has downloaded is used.
        if early.get("failed") and not early.get("lost"):
            return early
        done = together(early, super().answer(variables))
        if self._task.check_mode or done.get("failed"):
            return done
        return self._pinned(done, arguments, variables)

    def _pinned(self, done: Answer, arguments: Arguments, variables: TaskVars) -> Answer:
        """Write the new pins (commits of branches) to the pins file, and add them to the fact `drafthouse_profile`."""
        commits = {placed["id"]: placed["commit"] for placed in done.get("placed") or [] if placed.get("commit")}
        moving = [
            item
            for item in arguments["items"]
            if item["source"] == "hub" and item["id"] in commits and item["details"]["revision"] != commits[item["id"]]
        ]
        new = {hub_key(item["details"]["repo"], item["details"]["revision"]): commits[item["id"]] for item in moving}
        remember(pins_file(), Pins(hub=new), boolean(arguments.get("repin") or False))
        if moving and (fact := variables.get("drafthouse_profile")):
            ids = {item["id"] for item in moving}
            weights = [
                {**item, "pinned": commits[item["id"]]} if item["id"] in ids else item for item in fact["weights"]
            ]
            done = {**done, "ansible_facts": {"drafthouse_profile": {**fact, "weights": weights}}}
        return done


def without_engine(items: list[WeightItem]) -> list[WeightItem]:
    """Items that do not need the engine's environment; in ``items`` each follows what it is made from."""
    chosen: dict[str, WeightItem] = {}
    for item in items:
        details = item["details"]
        if item["source"] == "path":
            continue
        if item["source"] == "derived" and (details["recipe"] in NEEDS_ENGINE or details["from"] not in chosen):
            continue
        chosen[item["id"]] = item
    return list(chosen.values())


def together(early: Answer, late: Answer) -> Answer:
    """Result of both parts of a download; ``late`` is about all weights. {} for ``early``: there was no first part."""
    if early.get("failed") or not early or late.get("failed"):
        return late
    before = {placed["id"]: placed for placed in early["placed"] if placed["changed"]}
    placed = [item if item["changed"] else before.get(item["id"], item) for item in late["placed"]]
    notes = list(dict.fromkeys([*early["notes"], *late["notes"]]))
    return {**late, "changed": early["changed"] or late["changed"], "placed": placed, "notes": notes}
