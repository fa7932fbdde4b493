"""Documentation of the action `drafthouse.core.gateway`, which works on the controller."""

DOCUMENTATION = r"""
module: gateway
short_description: Write the files of a gateway or of a fleet's front
description:
  - Renders Caddy's files and writes them to the box with M(drafthouse.core.laid_out).
  - Its options are the fields of C(Settings) in src/drafthouse/addons/gateway.py.
author: Drafthouse
"""
