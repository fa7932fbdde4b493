"""Documentation of the action `drafthouse.core.watchdog`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: watchdog
short_description: Render the files of a box's watchdog
description:
  - Returns them as C(entries), with the thresholds that the kept measurement gives.
  - Fails where both arms were not measured.
options:
  resolved:
    description: "The profile with its run: C(drafthouse_profile) and C(drafthouse_run) in one."
    type: dict
    required: true
author: Drafthouse
"""
