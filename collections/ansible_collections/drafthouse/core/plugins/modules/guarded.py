"""Documentation of the action `drafthouse.core.guarded`, which works on the controller."""

DOCUMENTATION = r"""
module: guarded
short_description: Arm the rollback guard of a run
description:
  - The box restores the last known-good server by itself if ansible-playbook dies.
  - Does nothing if nothing served before and the box is in no fleet.
options:
  resolved: {description: "The profile, its run and its box: all three facts in one.", type: dict, required: true}
author: Drafthouse
"""
