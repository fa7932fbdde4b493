"""Documentation of the action `drafthouse.core.suites`, which works on the controller."""

DOCUMENTATION = r"""
module: suites
short_description: Copy the prompts of a profile to the box
description:
  - Returns the result of M(drafthouse.core.laid_out).
options:
  resolved: {description: C(drafthouse_profile) and C(drafthouse_run) in one., type: dict, required: true}
author: Drafthouse
"""
