"""Wait for the engine and show how it comes up (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.engine_ready`."""

    module = "drafthouse.core.engine_ready"
