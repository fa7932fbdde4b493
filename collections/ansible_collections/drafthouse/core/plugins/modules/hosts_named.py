"""Documentation of the action `drafthouse.core.hosts_named`, which works on the controller."""

DOCUMENTATION = r"""
module: hosts_named
short_description: Verify that this Ansible can play, and that the inventory has a host
description:
  - Fails with another line of ansible-core, without the libraries, or with a strategy that cannot work.
author: Drafthouse
"""
