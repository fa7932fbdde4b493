"""Documentation of the action `drafthouse.core.one_run`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: one_run
short_description: Ensure that this run is the only one on a box
description:
  - Holds the box's lock while ansible-playbook lives. Fails, and names the other run, where it is taken.
options:
  resolved: {description: "The profile: the fact C(drafthouse_profile).", type: dict, required: true}
  phase: {description: "What the run is at, for who is refused.", type: str, required: true}
  make: {description: Whether to make our folder where it is not there yet., type: bool}
author: Drafthouse
"""
