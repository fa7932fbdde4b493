"""Documentation of the action `drafthouse.core.monitoring`, which works on the controller."""

DOCUMENTATION = r"""
module: monitoring
short_description: Write the files of a box's monitoring
description:
  - Renders the files of Prometheus, its exporters and Grafana, and writes them to the box.
  - Its options are the fields of C(Settings) in src/drafthouse/addons/monitoring.py.
author: Drafthouse
"""
