#!/usr/bin/python
"""Probe TCP ports of another machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reachable
short_description: Probe TCP ports of another machine
description:
  - Opens a TCP connection to each door (address and port) and closes it; nothing is sent.
  - Runs on the machine from which to probe, with C(delegate_to).
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  doors:
    description: What to probe - address, port, and other keys, which are returned as they are.
    type: list
    elements: dict
    required: true
  timeout_s: {description: Seconds for each door; all are probed at the same time., type: float, default: 2}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather port probes from another machine
  drafthouse.core.reachable:
    doors: [{address: 192.0.2.7, port: 8000}]
  delegate_to: neighbour
"""
RETURN = r"""
doors:
  description: The same doors with answers, and source, the address from which the machine probed.
  returned: success
  type: list
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.port_probe import probe_ports


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "doors": {"type": "list", "elements": "dict", "required": True},
            "timeout_s": {"type": "float", "default": 2.0},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, doors=probe_ports(module.params["doors"], module.params["timeout_s"]))


if __name__ == "__main__":
    main()
