"""Documentation of the action `drafthouse.core.guarded`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: guarded
short_description: Arm the rollback guard of a run
description:
  - Has the box restore the last known-good server if ansible-playbook ends before its time.
  - Does nothing where nothing served before and the box is in no fleet.
options:
  resolved:
    description: "The profile with its run and its box: C(drafthouse_profile), C(drafthouse_run) and C(box) in one."
    type: dict
    required: true
author: Drafthouse
"""
