"""Documentation of the action `drafthouse.core.refused`, which works on the controller."""

DOCUMENTATION = r"""
module: refused
short_description: Restore the last known-good server after a failure
description:
  - Fails with the given failure; if something served before, it serves again.
options:
  resolved: {description: "The profile, its run and its box: all three facts in one.", type: dict, required: true}
  failed: {description: The result of the task that failed., type: dict, required: true}
  task: {description: The name of that task., type: str}
author: Drafthouse
"""
