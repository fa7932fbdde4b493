"""Documentation of the action `drafthouse.core.resolve`, which works on the controller."""

DOCUMENTATION = r"""
module: resolve
short_description: Resolve the profile for a box
description:
  - Sets the facts C(drafthouse_profile), C(drafthouse_box) and C(drafthouse_run); the first task of every play.
  - Reads C(profile), C(engine_version), C(overrides), and variables that begin with C(drafthouse_).
  - Fails with every problem of profile and inventory.
options:
  again: {description: "Resolve again, for a box that has changed.", type: bool}
  profile: {description: The profile's name in place of the variable., type: str}
author: Drafthouse
"""
