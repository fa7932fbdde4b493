"""Documentation of the action `drafthouse.core.report`, which works on the controller."""

DOCUMENTATION = r"""
module: report
short_description: Judge a measurement and write its report
description:
  - Fetches the results of both arms and writes the report on the controller.
options:
  resolved: {description: "The profile, its run and its box: all three facts in one.", type: dict, required: true}
  folder: {description: Where reports go; a relative path is below the clone., type: path, required: true}
author: Drafthouse
"""
