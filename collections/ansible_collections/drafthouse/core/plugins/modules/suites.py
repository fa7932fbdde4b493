"""Documentation of the action `drafthouse.core.suites`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: suites
short_description: Copy the prompts of a profile to the box
description:
  - Answers as M(drafthouse.core.laid_out) does.
options:
  resolved:
    description: "The profile with its run: C(drafthouse_profile) and C(drafthouse_run) in one."
    type: dict
    required: true
author: Drafthouse
"""
