"""Documentation of the action `drafthouse.core.driver_choice`, which works on the controller."""

DOCUMENTATION = r"""
module: driver_choice
short_description: Choose what to do about a box's NVIDIA driver
description:
  - Judges what M(drafthouse.core.driver_facts) finds on the box; changes nothing.
  - Fails with every reason against touching the driver.
options:
  step:
    description: What is asked - C(choose), C(pick), C(hold), C(settle) or C(remove).
    type: str
    required: true
  wishes: {description: "Variables of the role nvidia_driver, without its prefix.", type: dict}
  look: {description: Arguments of M(drafthouse.core.driver_facts)., type: dict}
  plan: {description: "With C(pick), the plan of C(choose).", type: dict}
  versions: {description: "With C(pick), for each package the versions that apt has.", type: dict}
  rebooted: {description: "With C(settle), whether the box was started again already.", type: bool}
author: Drafthouse
"""
