"""Documentation of the action `drafthouse.core.refused`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: refused
short_description: Restore the last known-good server after a failure
description:
  - Ends with the failure that it is given; where something served before, that serves again.
options:
  resolved:
    description: "The profile with its run and its box: C(drafthouse_profile), C(drafthouse_run) and C(box) in one."
    type: dict
    required: true
  failed: {description: The result of the task that failed., type: dict, required: true}
  task: {description: The name of that task., type: str}
author: Drafthouse
"""
