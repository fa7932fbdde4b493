"""Ensure that a container image is on the box: the same one that its tag named at the first pull (see `core.pins`)."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.pins import Pins, image_of, pins_file, read_pins, remember
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars

_MODULE = "drafthouse.core.image"


class ActionModule(Action):
    """`drafthouse.core.image`: ``name`` of the image; ``offline``: pull nothing, it must be on the box already.

    With the variable `repin` the image that the tag names now is pulled and pinned.
    """

    _VALID_ARGS = frozenset({"name", "offline"})

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, after the pull if one was needed. A new image is pinned, and named in the fact."""
        name = str(self._task.args["name"])
        repin = boolean(variables.get("repin") or False)
        profile = _resolved(variables)
        is_nightly = bool(profile.get("unpinned")) and name == image_of(profile)  # its tag is meant to move
        arguments = {"name": name, "digest": "", "id": "", "offline": self._task.args.get("offline", False)}
        pins = read_pins(pins_file())
        if not repin and not is_nightly:
            arguments |= {"digest": pins.images.get(name, ""), "id": pins.ids.get(name, "")}
        result = self.run_module(_MODULE, arguments, variables)
        pull = result.get("pull")
        if repin and result.get("present") and "@" not in name:
            pull = name
        if result.get("failed") or self._task.check_mode:
            return {**result, "changed": bool(pull)}
        if pull:
            id_before = result.get("id")
            result = self.run_module(_MODULE, {**arguments, "pull": pull}, variables)
            result["changed"] = id_before != result.get("id")
        # A name with a digest needs no pin, and an image that was built here has no digest.
        if result.get("failed") or "@" in name or not result["digest"]:
            return result
        if not is_nightly:
            remember(pins_file(), Pins(images={name: result["digest"]}, ids={name: result["id"]}), repin)
        if profile and name == image_of(profile):
            result["ansible_facts"] = {"drafthouse_profile": {**profile, "image_digest": result["digest"]}}
        return result


def _resolved(variables: TaskVars) -> TaskVars:
    """The resolved profile; {} if the variable still is the name of a profile, from the inventory."""
    fact = variables.get("drafthouse_profile")
    return dict(fact) if isinstance(fact, Mapping) else {}
