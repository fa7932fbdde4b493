"""Documentation of the action `drafthouse.core.watchdog`, which works on the controller."""

DOCUMENTATION = r"""
module: watchdog
short_description: Render the files of a box's watchdog
description:
  - Returns them as C(entries), with the thresholds that the kept measurement gives.
  - Fails unless both arms were measured.
options:
  resolved: {description: C(drafthouse_profile) and C(drafthouse_run) in one., type: dict, required: true}
author: Drafthouse
"""
