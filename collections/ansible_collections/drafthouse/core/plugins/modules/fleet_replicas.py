"""Documentation of the action `drafthouse.core.fleet_replicas`, which works on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_replicas
short_description: Gather the boxes behind a fleet's front
description:
  - Joins the boxes of this run that are well with those that the front keeps, and keeps them there.
options:
  home: {description: Our folder on the box., type: path, required: true}
author: Drafthouse
"""
