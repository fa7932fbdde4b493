"""Have an image on the box, the very one that its tag was at the first pull (module `image` does the comparing)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.pins import Pins, image_of, pins_file, read_pins, remember
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.image`: ``name`` of the image, and ``offline`` for one that must be on the box.

    The variable `repin` takes what the tag is now, and pins that.
    """

    _VALID_ARGS = frozenset({"name", "offline"})

    def answer(self, variables: TaskVars) -> Answer:
        """Compare, pull what is missing, compare again, and write down what was pulled first."""
        self._variables = variables
        name, again = str(self._task.args["name"]), boolean(self._variables.get("repin") or False)
        pins = read_pins(pins_file())
        fact = _resolved(variables)
        moving = bool(fact.get("unpinned")) and name == image_of(fact)  # a nightly's tag is meant to move
        free = again or moving
        wanted = "" if free else pins.images.get(name, "")
        wanted_id = "" if free else pins.ids.get(name, "")
        offline = self._task.args.get("offline", False)
        asked = {"name": name, "digest": wanted, "id": wanted_id, "offline": offline}
        found = self._asked(**asked)
        pull = name if again and found.get("present") and "@" not in name else found.get("pull")
        if found.get("failed") or self._task.check_mode:
            return {**found, "changed": bool(pull)}
        if pull:
            before, found = found.get("id"), self._asked(**asked, pull=pull)
            found["changed"] = before != found.get("id")
        # What names its digest itself needs no pin, and what no registry knows has none.
        if found.get("failed") or "@" in name or not found["digest"]:
            return found
        if not moving:
            remember(pins_file(), Pins(images={name: found["digest"]}, ids={name: found["id"]}), again)
        if fact and name == image_of(fact):
            found["ansible_facts"] = {"drafthouse_profile": {**fact, "image_digest": found["digest"]}}
        return found

    def _asked(self, **arguments: Any) -> dict[str, Any]:
        return dict(
            self._execute_module(module_name="drafthouse.core.image", module_args=arguments, task_vars=self._variables)
        )


def _resolved(variables: TaskVars) -> TaskVars:
    """The resolved profile; empty for an inventory's name of a profile, which nobody has resolved."""
    fact = variables.get("drafthouse_profile")
    return dict(fact) if isinstance(fact, Mapping) else {}
