"""Documentation of the action `drafthouse.core.kept_rounds`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kept_rounds
short_description: Gather which rounds of an experiment are kept and which are missing
description:
  - Looks for results of this profile on the box; measures nothing.
options:
  resolved:
    description: "The profile with its run: C(drafthouse_profile) and C(drafthouse_run) in one."
    type: dict
    required: true
author: Drafthouse
"""
