"""Documentation of the action `drafthouse.core.replica`, which works on the controller."""

DOCUMENTATION = r"""
module: replica
short_description: Compare the hosts of a replica, and render the files that keep them together
description:
  - Fails on all hosts of a replica if one host differs.
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
