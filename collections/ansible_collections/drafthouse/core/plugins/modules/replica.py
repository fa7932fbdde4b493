"""Documentation of the action `drafthouse.core.replica`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica
short_description: Compare the hosts of a replica, and render what keeps them together
description:
  - Fails on all hosts of a replica of which one is not like the others.
options:
  part:
    description: C(places) compares the boxes, C(engine) what was installed on them.
    type: str
    required: true
  facts:
    description: With C(engine), the name under which M(drafthouse.core.replica_facts) was registered.
    type: str
author: Drafthouse
"""
