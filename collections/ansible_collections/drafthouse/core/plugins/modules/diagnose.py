"""Documentation of the action `drafthouse.core.diagnose`, which works on the controller."""

DOCUMENTATION = r"""
module: diagnose
short_description: Judge the facts of a box for the doctor
description:
  - Judges what M(drafthouse.core.doctor) gathered; reads nothing itself.
  - Fails where a check fails.
options:
  resolved: {description: "The profile: the fact C(drafthouse_profile).", type: dict, required: true}
  look: {description: What M(drafthouse.core.doctor) returned., type: dict, required: true}
  outside: {description: "What M(drafthouse.core.reachable) returned, with C(from) and C(why).", type: dict}
  parts: {description: Parts of the box to judge; all by default., type: list, elements: str}
author: Drafthouse
"""
