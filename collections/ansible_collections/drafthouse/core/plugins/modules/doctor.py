#!/usr/bin/python
"""Read everything that the doctor judges a box by, without changing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: Read everything that the doctor judges a box by
description:
  - Reads GPU, driver, container engine, weights, disk, clock, firewall, ports and key, and asks engine and gateway a
    few real requests. Nothing is changed and nothing is restarted.
  - What cannot be read is listed under C(unread) with the reason. M(drafthouse.core.diagnose) judges the result.
  - The result has no key and no text of an answer.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  asked: {description: What to read for the profile; added by the action of the same name., type: dict, required: true}
  parts:
    description: What to read - gpu, runtime, weights, box, server, outside. Empty reads all.
    type: list
    elements: str
    default: []
  sys: {description: Where sysfs is., type: path, default: /sys}
  proc: {description: Where procfs is., type: path, default: /proc}
  timeout_s: {description: Seconds for an answer of the engine., type: int, default: 120}
  prove_container:
    description: Also run a small container with the GPU, and remove it. Everything else only reads.
    type: bool
    default: false
  firewall: {description: Whether our firewall rules are meant to be there., type: bool, default: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the box's state
  drafthouse.core.doctor:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
"""
RETURN = r"""
facts: {description: What was read., returned: always, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.operate.doctor.collect import read


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "asked": {"type": "dict", "required": True},
            "parts": {"type": "list", "elements": "str", "default": []},
            "sys": {"type": "path", "default": "/sys"},
            "proc": {"type": "path", "default": "/proc"},
            "timeout_s": {"type": "int", "default": 120},
            "prove_container": {"type": "bool", "default": False},
            "firewall": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, facts=read(module.params["asked"], module.params))


if __name__ == "__main__":
    main()
