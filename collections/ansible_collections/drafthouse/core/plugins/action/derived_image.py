"""Build an image with the module of the same name, and show the progress."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.derived_image`."""

    module = "drafthouse.core.derived_image"
    looks_first = True
