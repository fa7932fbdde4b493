"""Documentation of the action `drafthouse.core.fleet_replicas`, which works on the controller."""

DOCUMENTATION = r"""
module: fleet_replicas
short_description: Gather the boxes behind a fleet's front
description:
  - Merges the healthy boxes of this run into the list that the front keeps.
options:
  home: {description: Our folder on the box., type: path, required: true}
author: Drafthouse
"""
