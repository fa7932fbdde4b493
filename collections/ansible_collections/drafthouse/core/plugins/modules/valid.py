"""Documentation of the action `drafthouse.core.valid`, which works on the controller."""

DOCUMENTATION = r"""
module: valid
short_description: Verify that a verdict stands
description:
  - Fails if the measurement is invalid, or if a new server that fails a gate would replace another one.
options:
  report: {description: Result of M(drafthouse.core.report)., type: dict, required: true}
  replaces: {description: Whether another server serves now., type: bool}
  serve_arm: {description: The arm that is to serve whatever the verdict., type: str}
  profile: {description: "The profile's name, for the advice.", type: str}
author: Drafthouse
"""
