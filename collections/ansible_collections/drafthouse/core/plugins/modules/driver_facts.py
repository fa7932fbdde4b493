#!/usr/bin/python
"""Read the facts about a box's NVIDIA driver, without changing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_facts
short_description: Read the facts about a box's NVIDIA driver
description:
  - Returns GPUs on the PCI bus, what nvidia-smi says, loaded modules, Secure Boot, installed driver packages and the
    processes that use the GPU, as plain data. M(drafthouse.core.driver_choice) runs it and judges.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  sys: {description: Where sysfs is., type: path, default: /sys}
  proc: {description: Where procfs is., type: path, default: /proc}
  managed_by: {description: File that exists if our role has installed the driver., type: path, default: ""}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the facts about the driver
  drafthouse.core.driver_facts:
"""
RETURN = r"""
driver: {description: The facts., returned: always, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.driver.facts import read_driver


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "sys": {"type": "path", "default": "/sys"},
            "proc": {"type": "path", "default": "/proc"},
            "managed_by": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, driver=read_driver(given["sys"], given["proc"], given["managed_by"]))


if __name__ == "__main__":
    main()
