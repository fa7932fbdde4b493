"""Build an image and show how far it is (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.derived_image`."""

    module = "drafthouse.core.derived_image"
    looks_first = True
