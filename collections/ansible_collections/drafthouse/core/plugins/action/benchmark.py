"""Measure a step of an experiment with the module of the same name, and show the progress."""

from __future__ import annotations

from ..plugin_utils.following import FollowingAction


class ActionModule(FollowingAction):
    """`drafthouse.core.benchmark`."""

    module = "drafthouse.core.benchmark"
