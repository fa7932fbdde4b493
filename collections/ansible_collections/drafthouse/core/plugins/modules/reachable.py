#!/usr/bin/python
"""Knock on ports of another machine, and say which answer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reachable
short_description: Knock on ports of another machine
description:
  - Opens a TCP connection to each door and closes it again; nothing is sent.
  - Runs on the machine that shall knock, with C(delegate_to).
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  doors:
    description: Where to knock - address, port, and anything else, which comes back.
    type: list
    elements: dict
    required: true
  timeout_s: {description: Seconds for each door; they are knocked on at the same time., type: float, default: 2}
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
  description: The same doors with answers, and source - the address of the machine that leads there.
  returned: success
  type: list
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.port_probe import probe_ports


def main() -> None:
    """Answer Ansible."""
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
