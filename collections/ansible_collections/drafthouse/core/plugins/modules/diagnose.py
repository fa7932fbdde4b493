"""Documentation of the action `drafthouse.core.diagnose`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose
short_description: What the doctor makes of the facts of a box
description:
  - Judges what M(drafthouse.core.doctor) gathered; asks nothing itself.
  - Fails where a check fails.
options:
  resolved: {description: "The profile: the fact C(drafthouse_profile).", type: dict, required: true}
  look: {description: What M(drafthouse.core.doctor) returned., type: dict, required: true}
  outside: {description: "What M(drafthouse.core.reachable) returned, with C(from) and C(why).", type: dict}
  parts: {description: Parts of the box to judge; all by default., type: list, elements: str}
author: Drafthouse
"""
