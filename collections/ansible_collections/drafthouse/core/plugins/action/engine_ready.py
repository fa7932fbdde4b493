"""Wait for the engine with the module of the same name, and show the progress."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.engine_ready`."""

    module = "drafthouse.core.engine_ready"
