"""Documentation of the action `drafthouse.core.preflight`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Verify that a box can run a profile
description:
  - Judges the facts of the box; fails with every reason why it cannot.
options:
  resolved:
    description: "The profile with its run and its box: C(drafthouse_profile), C(drafthouse_run) and C(box) in one."
    type: dict
    required: true
  after_host: {description: Ask only for what the host phase should have made true., type: bool}
author: Drafthouse
"""
