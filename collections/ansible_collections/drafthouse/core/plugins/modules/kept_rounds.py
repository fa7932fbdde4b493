"""Documentation of the action `drafthouse.core.kept_rounds`, which works on the controller."""

DOCUMENTATION = r"""
module: kept_rounds
short_description: Gather which rounds of an experiment are kept and which are missing
description:
  - Reads which results of this profile are on the box; measures nothing.
options:
  resolved: {description: C(drafthouse_profile) and C(drafthouse_run) in one., type: dict, required: true}
author: Drafthouse
"""
