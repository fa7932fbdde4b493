"""Documentation of the action `drafthouse.core.served_history`, which works on the controller."""

DOCUMENTATION = r"""
module: served_history
short_description: Gather what a box has served
description:
  - Returns the events, and prints their table at the end of the run.
options:
  home: {description: Our folder on the box., type: path, required: true}
author: Drafthouse
"""
