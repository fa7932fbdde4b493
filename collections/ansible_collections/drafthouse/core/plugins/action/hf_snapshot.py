"""Download a repository of the hub with the module of the same name, and show the progress."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.hf_snapshot`."""

    module = "drafthouse.core.hf_snapshot"
    looks_first = True
