"""Put a repository of the hub in place and show how far it is (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.hf_snapshot`."""

    module = "drafthouse.core.hf_snapshot"
    looks_first = True
