"""Documentation of the action `drafthouse.core.preflight`, which works on the controller."""

DOCUMENTATION = r"""
module: preflight
short_description: Verify that a box can run a profile
description:
  - Judges the facts of the box; fails with every reason why it cannot.
options:
  resolved: {description: "The profile, its run and its box: all three facts in one.", type: dict, required: true}
  after_host: {description: Only check what the host phase should have put right., type: bool}
author: Drafthouse
"""
