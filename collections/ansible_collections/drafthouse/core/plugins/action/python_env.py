"""Make a Python environment and show how far it is (the module of the same name does the work)."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.python_env`."""

    module = "drafthouse.core.python_env"
    looks_first = True
