#!/usr/bin/python
"""Read what a box is, without changing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: box_facts
short_description: Read what a box is, without changing it
description:
  - Returns GPUs, memory, disk, Python and who holds the ports, as plain data.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  paths: {description: Folders whose file systems are asked for free space., type: list, elements: str, required: true}
  present: {description: Paths of which is told whether they are there., type: list, elements: str, default: []}
  ports: {description: TCP ports of which is told who listens., type: list, elements: int, required: true}
  supervisor_pidfile: {description: File with the pid of our supervisor., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Look at the box
  drafthouse.core.box_facts:
    paths: [/opt/drafthouse]
    ports: [8000]
    supervisor_pidfile: /opt/drafthouse/supervisor/supervisord.pid
"""
RETURN = r"""
box: {description: The facts., returned: always, type: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.box import read_box


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "str", "required": True},
            "present": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "int", "required": True},
            "supervisor_pidfile": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    box = read_box(module.params["paths"], module.params["ports"], module.params["supervisor_pidfile"])
    box["present"] = [path for path in module.params["present"] if Path(path).exists()]
    module.exit_json(changed=False, box=box)


if __name__ == "__main__":
    main()
