"""Documentation of the action `drafthouse.core.valid`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: valid
short_description: Verify that a verdict stands
description:
  - Fails where the measurement is invalid, or where a new server that fails a gate would replace another one.
options:
  report: {description: What M(drafthouse.core.report) returned., type: dict, required: true}
  replaces: {description: Whether another server serves now., type: bool}
  serve_arm: {description: The arm that shall serve whatever the verdict., type: str}
  profile: {description: "The profile's name, for the advice.", type: str}
author: Drafthouse
"""
