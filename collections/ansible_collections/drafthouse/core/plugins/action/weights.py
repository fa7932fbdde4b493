"""Put the weights in place and show how far they are (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.weights`."""

    module = "drafthouse.core.weights"
    looks_first = True
