"""Documentation of the action `drafthouse.core.report`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: report
short_description: Judge a measurement and write its report
description:
  - Fetches the results of both arms and writes the report on the controller.
options:
  resolved:
    description: "The profile with its run and its box: C(drafthouse_profile), C(drafthouse_run) and C(box) in one."
    type: dict
    required: true
  folder: {description: Where reports go; a relative path is below the clone., type: path, required: true}
author: Drafthouse
"""
