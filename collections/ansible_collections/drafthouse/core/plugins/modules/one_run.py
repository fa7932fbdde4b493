"""Documentation of the action `drafthouse.core.one_run`, which works on the controller."""

DOCUMENTATION = r"""
module: one_run
short_description: Ensure that this run is the only one on a box
description:
  - Holds a lease on our folder while ansible-playbook runs. Fails, and names the other run, if it is taken.
options:
  resolved: {description: "The profile: the fact C(drafthouse_profile).", type: dict, required: true}
  phase: {description: "What the run does, shown to a run that is refused.", type: str, required: true}
  make: {description: Whether to make our folder if it is missing., type: bool}
author: Drafthouse
"""
